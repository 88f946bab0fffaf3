"""The last step of each variant: bias and activation."""

from __future__ import annotations

import triton
import triton.language as tl

from tuner.kernels.shared.products import finished


@triton.jit
def activated(acc, bias, n, N, ACTIVATION: tl.constexpr, dtype: tl.constexpr):
    """Return act(sum + bias), which is then rounded to the dtype of the output. NaN stays NaN."""
    acc = finished(acc, bias, n, N, ACTIVATION, dtype)
    if ACTIVATION == "relu":
        acc = tl.maximum(acc, 0.0, propagate_nan=tl.PropagateNan.ALL)
    return acc
