"""A row in many blocks of one program: read twice, the second time from L2, and written once."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def layer_norm_looped(
    x, weight, bias, out, mean, rstd, M, N, stride_x, stride_out, eps,
    BLOCK_N: tl.constexpr, STAGES: tl.constexpr, ALIGN: tl.constexpr,
):  # fmt: skip
    """Normalise a row: one pass for mean and variance, a second that writes.

    Each lane sums the deviations from the first value that it reads, and their squares. That value is one of the
    lane's, so its distance from the lane's mean cancels few digits: a variance of K values is off by K roundings. The
    lanes are joined once, after the loop (Chan, Golub and LeVeque, "Algorithms for computing the sample variance",
    1983).
    """
    N = N // ALIGN * ALIGN
    row = tl.program_id(0).to(tl.int64)
    n = tl.arange(0, BLOCK_N)
    x += row * (stride_x // ALIGN * ALIGN)
    out += row * (stride_out // ALIGN * ALIGN)

    shift = tl.zeros((BLOCK_N,), tl.float32)
    total = tl.zeros((BLOCK_N,), tl.float32)
    squares = tl.zeros((BLOCK_N,), tl.float32)
    for start in tl.range(0, N, BLOCK_N, num_stages=STAGES):
        column = start + n
        values = tl.load(x + column, mask=column < N, other=0.0, eviction_policy="evict_last").to(tl.float32)
        # Infinities are no shift: what is infinite stays so, and does not become NaN.
        shift = tl.where((start == 0) & (tl.abs(values) < float("inf")), values, shift)
        deviation = tl.where(column < N, values - shift, 0.0)
        total += deviation
        squares += deviation * deviation
    count = ((N - n + BLOCK_N - 1) // BLOCK_N).to(tl.float32)
    lane_mean = shift + total / count
    row_mean = tl.sum(lane_mean * count, axis=0) / N
    within = squares - total * (total / count)
    between = (lane_mean - row_mean) * (lane_mean - row_mean) * count
    row_rstd = tl.rsqrt(tl.sum(within + between, axis=0) / N + eps)
    if mean is not None:
        tl.store(mean + row, row_mean)
        tl.store(rstd + row, row_rstd)

    # Backwards: the end of the row was read last, and is most likely in L2.
    for start in tl.range(0, N, BLOCK_N, num_stages=STAGES):
        column = (tl.cdiv(N, BLOCK_N) - 1) * BLOCK_N - start + n
        mask = column < N
        values = tl.load(x + column, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        scaled = (values - row_mean) * row_rstd
        if weight is not None:
            scaled = scaled * tl.load(weight + column, mask=mask, other=0.0).to(tl.float32)
        if bias is not None:
            scaled = scaled + tl.load(bias + column, mask=mask, other=0.0).to(tl.float32)
        tl.store(out + column, scaled.to(out.dtype.element_ty), mask=mask)
