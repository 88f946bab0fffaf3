"""A row in many blocks of one program: read twice, the second time from L2, and written once."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def rms_norm_looped(
    x, weight, residual, out, residual_out, M, N, stride_x, stride_r, stride_out, stride_ro, eps,
    BLOCK_N: tl.constexpr, STAGES: tl.constexpr, ALIGN: tl.constexpr,
):  # fmt: skip
    """Normalise a row: one pass adds up the squares, a second writes. The residual is added in the first."""
    N = N // ALIGN * ALIGN
    row = tl.program_id(0).to(tl.int64)
    n = tl.arange(0, BLOCK_N)
    x += row * (stride_x // ALIGN * ALIGN)
    out += row * (stride_out // ALIGN * ALIGN)
    again = x
    if residual is not None:
        residual += row * (stride_r // ALIGN * ALIGN)
        residual_out += row * (stride_ro // ALIGN * ALIGN)
        again = residual_out

    squares = tl.zeros((BLOCK_N,), tl.float32)
    for start in tl.range(0, N, BLOCK_N, num_stages=STAGES):
        column = start + n
        values = tl.load(x + column, mask=column < N, other=0.0, eviction_policy="evict_last")
        if residual is not None:
            added = tl.load(residual + column, mask=column < N, other=0.0).to(tl.float32)
            values = (values.to(tl.float32) + added).to(x.dtype.element_ty)
            tl.store(residual_out + column, values, mask=column < N)
        squares += values.to(tl.float32) * values.to(tl.float32)
    scale = tl.rsqrt(tl.sum(squares, axis=0) / N + eps)
    tl.debug_barrier()  # other threads may read what this one wrote

    # Backwards: the end of the row was read last, and is most likely in L2.
    for start in tl.range(0, N, BLOCK_N, num_stages=STAGES):
        column = (tl.cdiv(N, BLOCK_N) - 1) * BLOCK_N - start + n
        values = tl.load(again + column, mask=column < N, other=0.0, eviction_policy="evict_first").to(tl.float32)
        scaled = values * scale
        if weight is not None:
            scaled = scaled * tl.load(weight + column, mask=column < N, other=0.0).to(tl.float32)
        tl.store(out + column, scaled.to(out.dtype.element_ty), mask=column < N)
