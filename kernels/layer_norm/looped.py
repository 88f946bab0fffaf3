"""Rows in many blocks of one program: read twice, the second time from L2, and written once."""

from __future__ import annotations

import triton
import triton.language as tl

from tuner.kernels.shared.rows import inside


@triton.jit
def layer_norm_looped(
    x, weight, bias, out, mean, rstd, M, N, stride_x, stride_out, eps,
    BLOCK_N: tl.constexpr, ROWS: tl.constexpr, STAGES: tl.constexpr, ALIGN: tl.constexpr,
):  # fmt: skip
    """Normalise ROWS rows: one pass for mean and variance, a second that writes.

    Several rows of a program share what is read of weight and bias.

    Each lane sums the deviations from the first value that it reads, and their squares. That value is one of the
    lane's, so its distance from the lane's mean cancels few digits: a variance of K values is off by K roundings. The
    lanes are joined once, after the loop (Chan, Golub and LeVeque, "Algorithms for computing the sample variance",
    1983).
    """
    N = N // ALIGN * ALIGN
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    at = row.to(tl.int64)[:, None]
    x += at * (stride_x // ALIGN * ALIGN)
    out += at * (stride_out // ALIGN * ALIGN)

    shift = tl.zeros((ROWS, BLOCK_N), tl.float32)
    total = tl.zeros((ROWS, BLOCK_N), tl.float32)
    squares = tl.zeros((ROWS, BLOCK_N), tl.float32)
    for start in tl.range(0, N, BLOCK_N, num_stages=STAGES):
        n = start + tl.arange(0, BLOCK_N)
        mask = inside(row, n, M, N, ROWS, False)
        values = tl.load(x + n[None, :], mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        # Infinities are no shift: what is infinite stays so, and does not become NaN.
        shift = tl.where((start == 0) & (tl.abs(values) < float("inf")), values, shift)
        deviation = tl.where((n < N)[None, :], values - shift, 0.0)
        total += deviation
        squares += deviation * deviation
    count = ((N - tl.arange(0, BLOCK_N) + BLOCK_N - 1) // BLOCK_N).to(tl.float32)[None, :]
    lane_mean = shift + total / count
    row_mean = (tl.sum(lane_mean * count, axis=1) / N)[:, None]
    within = squares - total * (total / count)
    between = (lane_mean - row_mean) * (lane_mean - row_mean) * count
    row_rstd = tl.rsqrt(tl.sum(within + between, axis=1) / N + eps)[:, None]
    if mean is not None:
        tl.store(mean + row[:, None], row_mean, mask=row[:, None] < M)
        tl.store(rstd + row[:, None], row_rstd, mask=row[:, None] < M)

    # Backwards: the end of the row was read last, and is most likely in L2.
    for start in tl.range(0, N, BLOCK_N, num_stages=STAGES):
        n = (tl.cdiv(N, BLOCK_N) - 1) * BLOCK_N - start + tl.arange(0, BLOCK_N)
        mask = inside(row, n, M, N, ROWS, False)
        values = tl.load(x + n[None, :], mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        scaled = (values - row_mean) * row_rstd
        if weight is not None:
            scaled = scaled * tl.load(weight + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
        if bias is not None:
            scaled = scaled + tl.load(bias + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
        tl.store(out + n[None, :], scaled.to(out.dtype.element_ty), mask=mask)
