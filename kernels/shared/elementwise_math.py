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
