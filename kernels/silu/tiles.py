"""Device code of silu: tiles that are read, computed in fp32 and written."""

from __future__ import annotations

import triton
import triton.language as tl

from tuner.kernels.shared.elementwise_math import times_sigmoid
from tuner.kernels.shared.elementwise_tiles import computed_tiles


@triton.jit
def silu_tiles(
    x, out, M, N, stride_x, stride_out,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEPS: tl.constexpr, STAGES: tl.constexpr,
    ALIGNED: tl.constexpr, N_ALIGNED: tl.constexpr, EVICT_FIRST: tl.constexpr,
):  # fmt: skip
    """Compute the tiles of a program."""
    computed_tiles(
        silu, (x,), (stride_x,), out, stride_out, M, N,
        ROWS, COLUMNS, STEPS, STAGES, ALIGNED, N_ALIGNED, EVICT_FIRST,
    )  # fmt: skip


@triton.jit
def silu(values, dtype: tl.constexpr):
    """Return the SiLU of a value."""
    return times_sigmoid(values[0], values[0], dtype)
