"""A row in many blocks, each of a program of its own: read once and written once."""

from __future__ import annotations

import triton
import triton.language as tl

from tuner.kernels.shared.rows_exchange import leave_row, take_part, wait_for_parts


@triton.jit
def layer_norm_shared(
    x, weight, bias, out, mean, rstd, started, arrived, found, M, N, stride_x, stride_out, eps,
    BLOCK_N: tl.constexpr, PARTS: tl.constexpr, ALIGN: tl.constexpr,
):  # fmt: skip
    """Normalise one of PARTS blocks of a row; the programs of a row exchange their means and sums of squares.

    The squares are those of deviations from the part's own mean, so that few digits cancel when parts are joined.
    """
    N = N // ALIGN * ALIGN
    ticket = take_part(started, M * PARTS)
    row, part = (ticket // PARTS).to(tl.int64), ticket % PARTS
    n = part * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = n < N
    values = tl.load(x + row * (stride_x // ALIGN * ALIGN) + n, mask=mask, other=0.0).to(tl.float32)
    if weight is not None:
        factors = tl.load(weight + n, mask=mask, other=0.0)
    if bias is not None:
        terms = tl.load(bias + n, mask=mask, other=0.0)
    part_mean = tl.sum(values, axis=0) / tl.minimum(N - part * BLOCK_N, BLOCK_N)
    deviation = tl.where(mask, values - part_mean, 0.0)
    mine = found + (row * PARTS + part) * 2
    tl.store(mine, part_mean)
    tl.store(mine + 1, tl.sum(deviation * deviation, axis=0))

    wait_for_parts(arrived + row, PARTS)
    parts = tl.arange(0, triton.next_power_of_2(PARTS))
    there = parts < PARTS
    others = found + (row * PARTS + parts) * 2
    means = tl.load(others, mask=there, other=0.0, cache_modifier=".cg")
    squares = tl.load(others + 1, mask=there, other=0.0, cache_modifier=".cg")
    leave_row(arrived + row, PARTS)
    count = tl.where(there, tl.minimum(N - parts * BLOCK_N, BLOCK_N), 0).to(tl.float32)
    row_mean = tl.sum(tl.where(there, means * count, 0.0), axis=0) / N
    apart = tl.where(there, means - row_mean, 0.0)
    row_rstd = tl.rsqrt(tl.sum(squares + apart * apart * count, axis=0) / N + eps)
    if mean is not None:
        if part == 0:
            tl.store(mean + row, row_mean)
            tl.store(rstd + row, row_rstd)

    scaled = (values - row_mean) * row_rstd
    if weight is not None:
        scaled = scaled * factors.to(tl.float32)
    if bias is not None:
        scaled = scaled + terms.to(tl.float32)
    tl.store(out + row * (stride_out // ALIGN * ALIGN) + n, scaled.to(out.dtype.element_ty), mask=mask)
