"""Device code of gelu: tiles that are read, computed in fp32 and written."""

from __future__ import annotations

import triton
import triton.language as tl

from tuner.kernels.shared.elementwise_math import exp2_once, inverse_once, times_sigmoid
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
    x = values[0]
    if dtype == tl.float32:
        return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    return x * normal_cdf(x)


@triton.jit
def normal_cdf(x):
    """Return the probability that a normal number is below x, with a relative error of 1e-4 for x of -6 and above.

    The form is Hastings' (Abramowitz and Stegun, 7.1.25), with coefficients for the least relative error:
    Phi(-x) = exp(-x^2 / 2) p(t) with t = 1 / (1 + 0.475 x).
    """
    t = inverse_once(1.0 + 0.475 * tl.abs(x))
    p = 0.1931692643229293 + t * (0.15279329265899916 + t * (0.2773229154146179 + t * -0.12333150087397265))
    tail = exp2_once(x * x * -0.7213475204444817) * (t * p)
    return tl.where(x < 0, tail, 1.0 - tail)
