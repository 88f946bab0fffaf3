"""What the variants of a scaled product share: which scales are a tile's."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def scales_of(scales, first, M, stride, SHARE: tl.constexpr, ROWS: tl.constexpr, AXIS: tl.constexpr):
    """Where the rows of a tile (columns: AXIS 1) have their scales in the first block along K, SHARE of them one.

    What a tile shares is a single number; SHARE 0 is a scale for everything.
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
    """A sum and one step's products more, scaled if blocks have scales of their own."""
    if OF_BLOCKS:
        acc += tl.dot(a_rows, b_rows.T) * (by_a * by_b)
    else:
        acc = tl.dot(a_rows, b_rows.T, acc, max_num_imprecise_acc=IMPRECISE)
    return acc
