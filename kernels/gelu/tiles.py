"""Device code of gelu: tiles that are read, computed in fp32 and written."""

from __future__ import annotations

import triton
import triton.language as tl

from tuner.kernels.shared.elementwise_math import times_normal_cdf, times_sigmoid
from tuner.kernels.shared.elementwise_tiles import computed_tiles


@triton.jit
def gelu_tiles(
    x, out, M, N, stride_x, stride_out,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEPS: tl.constexpr, STAGES: tl.constexpr,
    ALIGNED: tl.constexpr, N_ALIGNED: tl.constexpr, EVICT_FIRST: tl.constexpr,
    APPROXIMATE: tl.constexpr,
):  # fmt: skip
    """Compute the tiles of a program."""
    if APPROXIMATE == "tanh":
        computed_tiles(
            gelu_by_tanh, (x,), (stride_x,), out, stride_out, M, N,
            ROWS, COLUMNS, STEPS, STAGES, ALIGNED, N_ALIGNED, EVICT_FIRST,
        )  # fmt: skip
    else:
        computed_tiles(
            gelu, (x,), (stride_x,), out, stride_out, M, N,
            ROWS, COLUMNS, STEPS, STAGES, ALIGNED, N_ALIGNED, EVICT_FIRST,
        )  # fmt: skip


@triton.jit
def gelu_by_tanh(values, dtype: tl.constexpr):
    """Return the approximate GELU of a value: x * sigmoid(2 sqrt(2 / pi) (x + 0.044715 x^3))."""
    x = values[0]
    return times_sigmoid(x, x * (1.5957691216057308 + 0.07135481627260025 * x * x), dtype)


@triton.jit
def gelu(values, dtype: tl.constexpr):
    """Return the exact GELU of a value."""
    return times_normal_cdf(values[0], dtype)
