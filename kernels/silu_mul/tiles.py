"""Device code of silu_mul: tiles of gate and up that are read, computed in fp32 and written."""

from __future__ import annotations

import triton
import triton.language as tl

from tuner.kernels.shared.elementwise_math import times_sigmoid
from tuner.kernels.shared.elementwise_tiles import computed_tiles


@triton.jit
def silu_mul_tiles(
    gate, up, out, M, N, stride_gate, stride_up, stride_out,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEPS: tl.constexpr, STAGES: tl.constexpr,
    ALIGNED: tl.constexpr, N_ALIGNED: tl.constexpr, EVICT_FIRST: tl.constexpr, PACKED: tl.constexpr,
):  # fmt: skip
    """Compute the tiles of a program. Packed, up begins N elements after gate."""
    if PACKED:
        up += N // N_ALIGNED * N_ALIGNED
    computed_tiles(
        silu_mul, (gate, up), (stride_gate, stride_up), out, stride_out, M, N,
        ROWS, COLUMNS, STEPS, STAGES, ALIGNED, N_ALIGNED, EVICT_FIRST,
    )  # fmt: skip


@triton.jit
def silu_mul(values, dtype: tl.constexpr):
    """Return the SiLU of the first value times the second."""
    return times_sigmoid(values[0], values[0], dtype) * values[1]
