"""Device code of gelu: tiles that are read, computed in fp32 and written."""

from __future__ import annotations

import triton
import triton.language as tl

from tuner.kernels.shared.elementwise_math import exp2_once, inverse_once, times_sigmoid
from tuner.kernels.shared.elementwise_tiles import at_rows, corner, read, write


@triton.jit
def gelu_tiles(
    x, out, M, N, stride_x, stride_out,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEPS: tl.constexpr, STAGES: tl.constexpr,
    ALIGNED: tl.constexpr, N_ALIGNED: tl.constexpr, EVICT_FIRST: tl.constexpr,
    APPROXIMATE: tl.constexpr,
):  # fmt: skip
    """Compute the tiles of a program, without masks if all are inside."""
    N = N // N_ALIGNED * N_ALIGNED
    row, first, is_whole = corner(M, N, ROWS, COLUMNS, STEPS)
    x = at_rows(x, row, stride_x, ALIGNED)
    out = at_rows(out, row, stride_out, ALIGNED)
    if is_whole:
        gelu_chunk(x, out, row < M, first, N, COLUMNS, STEPS, STAGES, True, EVICT_FIRST, APPROXIMATE)
    else:
        gelu_chunk(x, out, row < M, first, N, COLUMNS, STEPS, STAGES, False, EVICT_FIRST, APPROXIMATE)


@triton.jit
def gelu_chunk(
    x, out, in_rows, first, N,
    COLUMNS: tl.constexpr, STEPS: tl.constexpr, STAGES: tl.constexpr, WHOLE: tl.constexpr, EVICT_FIRST: tl.constexpr,
    APPROXIMATE: tl.constexpr,
):  # fmt: skip
    """Compute tiles of the same rows, one after the other."""
    for step in tl.range(0, STEPS, num_stages=STAGES):
        n = first + step * COLUMNS + tl.arange(0, COLUMNS)[None, :]
        inside = in_rows & (n < N)
        values = read(x + n, inside, WHOLE, EVICT_FIRST)
        write(out + n, gelu(values, out.dtype.element_ty, APPROXIMATE), inside, WHOLE)


@triton.jit
def gelu(x, dtype: tl.constexpr, APPROXIMATE: tl.constexpr):
    """Return the GELU of fp32 values for results of a dtype."""
    if APPROXIMATE == "tanh":  # 2 sqrt(2 / pi) (x + 0.044715 x^3)
        return times_sigmoid(x, x * (1.5957691216057308 + 0.07135481627260025 * x * x), dtype)
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
