"""Device functions of elementwise ops, with as few instructions as the width of the results allows.

At 4 TB/s a multiprocessor has 29 instructions for each element of 16 bits that is read and written. Triton's
exponential and quotient scale their arguments, so that results below 1e-38 are right, and take four instructions each.
Only fp32 needs that.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton import knobs


@triton.constexpr_function
def interpreted() -> bool:
    """Return whether the kernel runs in the interpreter, which knows no PTX."""
    return bool(knobs.runtime.interpret)


@triton.jit
def exp2_once(x):
    """Return 2^x with a relative error of 2^-22, or 0 below 2^-126, by one instruction."""
    if interpreted():
        return tl.exp2(x)
    return tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def inverse_once(x):
    """Return 1 / x with a relative error of 2^-23, or 0 below 2^-126, by one instruction."""
    if interpreted():
        return 1.0 / x
    return tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def times_sigmoid(x, z, dtype: tl.constexpr):
    """Return x * sigmoid(z) of fp32 values, for results of a dtype."""
    if dtype == tl.float32:
        return x / (1.0 + tl.exp(-z))
    return x * inverse_once(1.0 + exp2_once(z * -1.4426950408889634))


@triton.jit
def times_normal_cdf(x, dtype: tl.constexpr):
    """Return x * Phi(x) of fp32 values, the exact GELU, for results of a dtype."""
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
