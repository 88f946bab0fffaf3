"""Device code: a program for each block of rows."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["stride_any"])
def copy_column_kernel(x, out, M, stride_x, stride_out, stride_any, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    """Copy BLOCK elements.

    `stride_any` is `stride_out`, but the compiler does not know it. If it sees that the elements of out are adjacent,
    it gives each thread 16 bytes of them, and so adjacent rows of x. The threads of a warp then read rows further apart
    than the warp's 32 adjacent ones, which share sectors if rows are short.
    """
    m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = m < M
    column = tl.load(x + m * stride_x, mask=mask)
    if WIDE:
        tl.store(out + m * stride_out, column, mask=mask)
    else:
        tl.store(out + m * stride_any, column, mask=mask)
