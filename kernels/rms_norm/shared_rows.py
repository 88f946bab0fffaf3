"""A row in many blocks, each of a program of its own: read once and written once."""

from __future__ import annotations

import triton
import triton.language as tl

from tuner.kernels.shared.rows_exchange import leave_row, take_part, wait_for_parts


@triton.jit
def rms_norm_shared(
    x, weight, residual, out, residual_out, started, arrived, found,
    M, N, stride_x, stride_r, stride_out, stride_ro, eps,
    BLOCK_N: tl.constexpr, PARTS: tl.constexpr, ALIGN: tl.constexpr,
):  # fmt: skip
    """Normalise one of PARTS blocks of a row; the programs of a row exchange their sums of squares."""
    ticket = take_part(started, M * PARTS)
    row, part = (ticket // PARTS).to(tl.int64), ticket % PARTS
    n = part * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = n < N // ALIGN * ALIGN
    values = tl.load(x + row * (stride_x // ALIGN * ALIGN) + n, mask=mask, other=0.0)
    if residual is not None:
        added = tl.load(residual + row * (stride_r // ALIGN * ALIGN) + n, mask=mask, other=0.0).to(tl.float32)
    if weight is not None:
        factors = tl.load(weight + n, mask=mask, other=0.0)
    if residual is not None:
        values = (values.to(tl.float32) + added).to(x.dtype.element_ty)
        tl.store(residual_out + row * (stride_ro // ALIGN * ALIGN) + n, values, mask=mask)
    numbers = values.to(tl.float32)
    tl.store(found + row * PARTS + part, tl.sum(numbers * numbers, axis=0))

    wait_for_parts(arrived + row, PARTS)
    parts = tl.arange(0, triton.next_power_of_2(PARTS))
    squares = tl.load(found + row * PARTS + parts, mask=parts < PARTS, other=0.0, cache_modifier=".cg")
    scale = tl.rsqrt(tl.sum(squares, axis=0) / N + eps)
    leave_row(arrived + row, PARTS)

    scaled = numbers * scale
    if weight is not None:
        scaled = scaled * factors.to(tl.float32)
    tl.store(out + row * (stride_out // ALIGN * ALIGN) + n, scaled.to(out.dtype.element_ty), mask=mask)
