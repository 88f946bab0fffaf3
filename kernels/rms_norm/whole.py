"""Rows that stay in a program's registers: read once and written once."""

from __future__ import annotations

import triton
import triton.language as tl

from tuner.kernels.shared.rows import inside, read_rows, read_vector


@triton.jit
def normalise(
    x, weight, residual, out, residual_out, weights, row, M, N, stride_x, stride_r, stride_out, stride_ro, eps,
    BLOCK_N: tl.constexpr, CHUNKS: tl.constexpr, ROWS: tl.constexpr, EVEN: tl.constexpr, LATE: tl.constexpr,
):  # fmt: skip
    """Normalise ROWS rows. All chunks are read before the first is used, so that they are in flight together."""
    values = read_rows(x, stride_x, row, M, N, BLOCK_N, CHUNKS, ROWS, EVEN)
    at = row.to(tl.int64)[:, None]
    if residual is not None:
        added = read_rows(residual, stride_r, row, M, N, BLOCK_N, CHUNKS, ROWS, EVEN)
        sums = ()
        for chunk in tl.static_range(CHUNKS):
            n = chunk * BLOCK_N + tl.arange(0, BLOCK_N)
            both = values[chunk].to(tl.float32) + added[chunk].to(tl.float32)
            sums += (both.to(x.dtype.element_ty),)  # type: ignore[assignment]
            tl.store(residual_out + at * stride_ro + n[None, :], sums[chunk], mask=inside(row, n, M, N, ROWS, EVEN))
        values = sums
    squares = tl.zeros((ROWS, BLOCK_N), tl.float32)
    for chunk in tl.static_range(CHUNKS):
        squares += values[chunk].to(tl.float32) * values[chunk].to(tl.float32)
    scale = tl.rsqrt(tl.sum(squares, axis=1) / N + eps)[:, None]
    if LATE:
        weights = read_vector(weight, N, BLOCK_N, CHUNKS, EVEN)
    for chunk in tl.static_range(CHUNKS):
        n = chunk * BLOCK_N + tl.arange(0, BLOCK_N)
        scaled = values[chunk].to(tl.float32) * scale
        if weight is not None:
            scaled = scaled * weights[chunk].to(tl.float32)
        place = out + at * stride_out + n[None, :]
        tl.store(place, scaled.to(out.dtype.element_ty), mask=inside(row, n, M, N, ROWS, EVEN))


@triton.jit
def rms_norm_whole(
    x, weight, residual, out, residual_out, M, N, stride_x, stride_r, stride_out, stride_ro, eps,
    BLOCK_N: tl.constexpr, CHUNKS: tl.constexpr, ROWS: tl.constexpr, STEPS: tl.constexpr, STAGES: tl.constexpr,
    ALIGN: tl.constexpr, EVEN: tl.constexpr, LATE: tl.constexpr,
):  # fmt: skip
    """Normalise ROWS rows, STEPS times. Unless read LATE, the weight stays in the registers meanwhile."""
    N = N // ALIGN * ALIGN  # so the compiler knows that 16 bytes are inside or outside together
    stride_x, stride_r = stride_x // ALIGN * ALIGN, stride_r // ALIGN * ALIGN
    stride_out, stride_ro = stride_out // ALIGN * ALIGN, stride_ro // ALIGN * ALIGN
    weights = ()
    if not LATE:
        weights = read_vector(weight, N, BLOCK_N, CHUNKS, EVEN)
    if STEPS == 1:
        row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        normalise(
            x, weight, residual, out, residual_out, weights, row, M, N, stride_x, stride_r, stride_out, stride_ro,
            eps, BLOCK_N, CHUNKS, ROWS, EVEN, LATE,
        )  # fmt: skip
    else:
        for group in tl.range(tl.program_id(0), tl.cdiv(M, ROWS), tl.num_programs(0), num_stages=STAGES):
            row = group * ROWS + tl.arange(0, ROWS)
            normalise(
                x, weight, residual, out, residual_out, weights, row, M, N, stride_x, stride_r, stride_out, stride_ro,
                eps, BLOCK_N, CHUNKS, ROWS, EVEN, LATE,
            )  # fmt: skip
