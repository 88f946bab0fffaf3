"""Device code of silu: tiles that are read, computed in fp32 and written."""

from __future__ import annotations

import triton
import triton.language as tl

from tuner.kernels.shared.elementwise_math import times_sigmoid
from tuner.kernels.shared.elementwise_tiles import at_rows, corner, read, write


@triton.jit
def silu_tiles(
    x, out, M, N, stride_x, stride_out,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEPS: tl.constexpr, STAGES: tl.constexpr,
    ALIGNED: tl.constexpr, N_ALIGNED: tl.constexpr, EVICT_FIRST: tl.constexpr,
):  # fmt: skip
    """Compute the tiles of a program, without masks if all are inside."""
    N = N // N_ALIGNED * N_ALIGNED
    row, first, is_whole = corner(M, N, ROWS, COLUMNS, STEPS)
    x = at_rows(x, row, stride_x, ALIGNED)
    out = at_rows(out, row, stride_out, ALIGNED)
    if is_whole:
        silu_chunk(x, out, row < M, first, N, COLUMNS, STEPS, STAGES, True, EVICT_FIRST)
    else:
        silu_chunk(x, out, row < M, first, N, COLUMNS, STEPS, STAGES, False, EVICT_FIRST)


@triton.jit
def silu_chunk(
    x, out, in_rows, first, N,
    COLUMNS: tl.constexpr, STEPS: tl.constexpr, STAGES: tl.constexpr, WHOLE: tl.constexpr, EVICT_FIRST: tl.constexpr,
):  # fmt: skip
    """Compute tiles of the same rows, one after the other."""
    for step in tl.range(0, STEPS, num_stages=STAGES):
        n = first + step * COLUMNS + tl.arange(0, COLUMNS)[None, :]
        inside = in_rows & (n < N)
        values = read(x + n, inside, WHOLE, EVICT_FIRST)
        write(out + n, times_sigmoid(values, values, out.dtype.element_ty), inside, WHOLE)
