"""Device code of add: tiles that are read, added and written."""

from __future__ import annotations

import triton
import triton.language as tl

from tuner.kernels.shared.elementwise_tiles import computed_tiles


@triton.jit
def add_tiles(
    x, y, out, M, N, stride_x, stride_y, stride_out,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEPS: tl.constexpr, STAGES: tl.constexpr,
    ALIGNED: tl.constexpr, N_ALIGNED: tl.constexpr, EVICT_FIRST: tl.constexpr,
):  # fmt: skip
    """Compute the tiles of a program."""
    computed_tiles(
        add, (x, y), (stride_x, stride_y), out, stride_out, M, N,
        ROWS, COLUMNS, STEPS, STAGES, ALIGNED, N_ALIGNED, EVICT_FIRST,
    )  # fmt: skip


@triton.jit
def add(values, dtype: tl.constexpr):
    """Return the sum of two values."""
    return values[0] + values[1]
