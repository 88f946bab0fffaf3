"""Device code of silu_mul: tiles of gate and up that are read, computed in fp32 and written."""

from __future__ import annotations

import triton
import triton.language as tl

from tuner.kernels.shared.elementwise_math import times_sigmoid
from tuner.kernels.shared.elementwise_tiles import at_rows, corner, read, write


@triton.jit
def silu_mul_tiles(
    gate, up, out, M, N, stride_gate, stride_up, stride_out,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEPS: tl.constexpr, STAGES: tl.constexpr,
    ALIGNED: tl.constexpr, N_ALIGNED: tl.constexpr, EVICT_FIRST: tl.constexpr, PACKED: tl.constexpr,
):  # fmt: skip
    """Compute the tiles of a program, without masks if all are inside. Packed, up begins N elements after gate."""
    N = N // N_ALIGNED * N_ALIGNED
    row, first, is_whole = corner(M, N, ROWS, COLUMNS, STEPS)
    gate = at_rows(gate, row, stride_gate, ALIGNED)
    up = at_rows(up, row, stride_up, ALIGNED)
    out = at_rows(out, row, stride_out, ALIGNED)
    if PACKED:
        up += N
    if is_whole:
        silu_mul_chunk(gate, up, out, row < M, first, N, COLUMNS, STEPS, STAGES, True, EVICT_FIRST)
    else:
        silu_mul_chunk(gate, up, out, row < M, first, N, COLUMNS, STEPS, STAGES, False, EVICT_FIRST)


@triton.jit
def silu_mul_chunk(
    gate, up, out, in_rows, first, N,
    COLUMNS: tl.constexpr, STEPS: tl.constexpr, STAGES: tl.constexpr, WHOLE: tl.constexpr, EVICT_FIRST: tl.constexpr,
):  # fmt: skip
    """Compute tiles of the same rows, one after the other."""
    for step in tl.range(0, STEPS, num_stages=STAGES):
        n = first + step * COLUMNS + tl.arange(0, COLUMNS)[None, :]
        inside = in_rows & (n < N)
        gates = read(gate + n, inside, WHOLE, EVICT_FIRST)
        ups = read(up + n, inside, WHOLE, EVICT_FIRST)
        write(out + n, times_sigmoid(gates, gates, out.dtype.element_ty) * ups, inside, WHOLE)
