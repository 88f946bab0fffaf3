"""Rows that stay in a program's registers: read once and written once."""

from __future__ import annotations

import triton
import triton.language as tl

from tuner.kernels.shared.rows import inside, read_rows, read_vector


@triton.jit
def normalise(
    x, weight, bias, out, mean, rstd, weights, biases, row, M, N, stride_x, stride_out, eps,
    BLOCK_N: tl.constexpr, CHUNKS: tl.constexpr, ROWS: tl.constexpr, EVEN: tl.constexpr, LATE: tl.constexpr,
):  # fmt: skip
    """Normalise ROWS rows. The variance is that of deviations from the mean, which registers make free of charge."""
    values = read_rows(x, stride_x, row, M, N, BLOCK_N, CHUNKS, ROWS, EVEN)
    total = tl.zeros((ROWS, BLOCK_N), tl.float32)
    for chunk in tl.static_range(CHUNKS):
        total += values[chunk].to(tl.float32)
    row_mean = tl.sum(total, axis=1) / N
    squares = tl.zeros((ROWS, BLOCK_N), tl.float32)
    for chunk in tl.static_range(CHUNKS):
        deviation = values[chunk].to(tl.float32) - row_mean[:, None]
        if not EVEN:
            n = chunk * BLOCK_N + tl.arange(0, BLOCK_N)
            deviation = tl.where((n < N)[None, :], deviation, 0.0)
        squares += deviation * deviation
    row_rstd = tl.rsqrt(tl.sum(squares, axis=1) / N + eps)
    if mean is not None:
        tl.store(mean + row, row_mean, mask=row < M)
        tl.store(rstd + row, row_rstd, mask=row < M)
    if LATE:
        weights = read_vector(weight, N, BLOCK_N, CHUNKS, EVEN)
        biases = read_vector(bias, N, BLOCK_N, CHUNKS, EVEN)
    start = out + row.to(tl.int64)[:, None] * stride_out
    for chunk in tl.static_range(CHUNKS):
        n = chunk * BLOCK_N + tl.arange(0, BLOCK_N)
        scaled = (values[chunk].to(tl.float32) - row_mean[:, None]) * row_rstd[:, None]
        if weight is not None:
            scaled = scaled * weights[chunk].to(tl.float32)
        if bias is not None:
            scaled = scaled + biases[chunk].to(tl.float32)
        tl.store(start + n[None, :], scaled.to(out.dtype.element_ty), mask=inside(row, n, M, N, ROWS, EVEN))


@triton.jit
def layer_norm_whole(
    x, weight, bias, out, mean, rstd, M, N, stride_x, stride_out, eps,
    BLOCK_N: tl.constexpr, CHUNKS: tl.constexpr, ROWS: tl.constexpr, STEPS: tl.constexpr, STAGES: tl.constexpr,
    ALIGN: tl.constexpr, EVEN: tl.constexpr, LATE: tl.constexpr,
):  # fmt: skip
    """Normalise ROWS rows, STEPS times. Unless read LATE, weight and bias stay in the registers meanwhile."""
    N = N // ALIGN * ALIGN  # so the compiler knows that 16 bytes are inside or outside together
    stride_x, stride_out = stride_x // ALIGN * ALIGN, stride_out // ALIGN * ALIGN
    weights, biases = (), ()
    if not LATE:
        weights = read_vector(weight, N, BLOCK_N, CHUNKS, EVEN)
        biases = read_vector(bias, N, BLOCK_N, CHUNKS, EVEN)
    if STEPS == 1:
        row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        normalise(
            x, weight, bias, out, mean, rstd, weights, biases, row, M, N, stride_x, stride_out, eps,
            BLOCK_N, CHUNKS, ROWS, EVEN, LATE,
        )  # fmt: skip
    else:
        for group in tl.range(tl.program_id(0), tl.cdiv(M, ROWS), tl.num_programs(0), num_stages=STAGES):
            row = group * ROWS + tl.arange(0, ROWS)
            normalise(
                x, weight, bias, out, mean, rstd, weights, biases, row, M, N, stride_x, stride_out, eps,
                BLOCK_N, CHUNKS, ROWS, EVEN, LATE,
            )  # fmt: skip
