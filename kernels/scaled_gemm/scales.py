"""Device functions of several variants of scaled_gemm: the scales of a tile."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def scales_of(scales, first, M, stride, SHARE: tl.constexpr, ROWS: tl.constexpr, AXIS: tl.constexpr):
    """Return pointers to the scales of a tile's rows (AXIS 0) or columns (AXIS 1) in the first block along K.

    SHARE rows have one scale: a tile within them has a single one. SHARE 0 is one scale for the matrix.
    """
    at = scales
    if SHARE > 0 and SHARE % ROWS == 0:
        at = scales + first // SHARE * stride
    elif SHARE > 0:
        each = (first + tl.arange(0, ROWS)) % M // SHARE
        at = scales + tl.expand_dims(each, 1 - AXIS).to(tl.int64) * stride
    return at


@triton.jit
def added(acc, a_rows, b_rows, by_a, by_b, OF_BLOCKS: tl.constexpr, IMPRECISE: tl.constexpr):
    """Return the sum with the products of one more step, scaled if blocks have scales."""
    if OF_BLOCKS:
        acc += tl.dot(a_rows, b_rows.T) * (by_a * by_b)
    else:
        acc = tl.dot(a_rows, b_rows.T, acc, max_num_imprecise_acc=IMPRECISE)
    return acc
