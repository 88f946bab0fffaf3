"""Rows in many blocks of one program: read twice, the second time from L2, and written once."""

from __future__ import annotations

import triton
import triton.language as tl

from tuner.kernels.shared.rows import inside


@triton.jit
def rms_norm_looped(
    x, weight, residual, out, residual_out, M, N, stride_x, stride_r, stride_out, stride_ro, eps,
    BLOCK_N: tl.constexpr, ROWS: tl.constexpr, STAGES: tl.constexpr, ALIGN: tl.constexpr,
):  # fmt: skip
    """Normalise ROWS rows: one pass adds up the squares, a second writes. The residual is added in the first.

    Several rows of a program share what is read of the weight.
    """
    N = N // ALIGN * ALIGN
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    at = row.to(tl.int64)[:, None]
    x += at * (stride_x // ALIGN * ALIGN)
    out += at * (stride_out // ALIGN * ALIGN)
    again = x
    if residual is not None:
        residual += at * (stride_r // ALIGN * ALIGN)
        residual_out += at * (stride_ro // ALIGN * ALIGN)
        again = residual_out

    squares = tl.zeros((ROWS, BLOCK_N), tl.float32)
    for start in tl.range(0, N, BLOCK_N, num_stages=STAGES):
        n = start + tl.arange(0, BLOCK_N)
        mask = inside(row, n, M, N, ROWS, False)
        values = tl.load(x + n[None, :], mask=mask, other=0.0, eviction_policy="evict_last")
        if residual is not None:
            added = tl.load(residual + n[None, :], mask=mask, other=0.0).to(tl.float32)
            values = (values.to(tl.float32) + added).to(out.dtype.element_ty)
            tl.store(residual_out + n[None, :], values, mask=mask)
        squares += values.to(tl.float32) * values.to(tl.float32)
    scale = tl.rsqrt(tl.sum(squares, axis=1) / N + eps)[:, None]
    tl.debug_barrier()  # other threads may read what this one wrote

    # Backwards: the end of the row was read last, and is most likely in L2.
    for start in tl.range(0, N, BLOCK_N, num_stages=STAGES):
        n = (tl.cdiv(N, BLOCK_N) - 1) * BLOCK_N - start + tl.arange(0, BLOCK_N)
        mask = inside(row, n, M, N, ROWS, False)
        values = tl.load(again + n[None, :], mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        scaled = values * scale
        if weight is not None:
            scaled = scaled * tl.load(weight + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
        tl.store(out + n[None, :], scaled.to(out.dtype.element_ty), mask=mask)
