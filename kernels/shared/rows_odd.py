"""Rows that begin anywhere in 16 bytes, read and written 16 bytes at once.

If rows have an odd number of elements of 16 bits, most of them begin in the middle of 16 bytes, and the compiler reads
them element by element. Here a program counts groups of 16 bytes from the one in which its row begins. It reads and
writes the groups that are all its own at once, and the elements at both ends of the row one by one. `shift` is the
number of elements of the first group that belong to the row before.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def first_group(x, row, stride, VEC: tl.constexpr):
    """Return the address of the group in which a row begins."""
    return x + row.to(tl.int64) * stride // VEC * VEC


@triton.jit
def is_whole(n, shift, N, VEC: tl.constexpr):
    """Return which elements are in groups that belong to the row alone."""
    group = n // VEC * VEC
    return (group >= shift) & (group + VEC <= shift + N)


@triton.jit
def read_groups(start, shift, N, BLOCK_N: tl.constexpr, CHUNKS: tl.constexpr, VEC: tl.constexpr):
    """Return the row's whole groups as a tuple of tiles (BLOCK_N,), 0 beside them."""
    chunks = ()
    for chunk in tl.static_range(CHUNKS):
        n = chunk * BLOCK_N + tl.arange(0, BLOCK_N)
        loaded = tl.load(start + n, mask=is_whole(n, shift, N, VEC), other=0.0)
        chunks += (loaded,)  # type: ignore[assignment]
    return chunks


@triton.jit
def read_shifted(vector, shift, N, BLOCK_N: tl.constexpr, CHUNKS: tl.constexpr, VEC: tl.constexpr):
    """Return a vector (N,) as tiles (BLOCK_N,) beside the whole groups of a row; () for None."""
    chunks = ()
    if vector is not None:
        for chunk in tl.static_range(CHUNKS):
            n = chunk * BLOCK_N + tl.arange(0, BLOCK_N)
            loaded = tl.load(vector + n - shift, mask=is_whole(n, shift, N, VEC), other=0.0)
            chunks += (loaded,)  # type: ignore[assignment]
    return chunks


@triton.jit
def ends(shift, N, VEC: tl.constexpr):
    """Return the places of the elements of a row's first and last group, and which to read and write one by one."""
    e = tl.arange(0, 2 * VEC)
    last = (shift + N) // VEC * VEC
    n = tl.where(e < VEC, e, last + e - VEC)
    # A first group that is whole is no end, nor is one that is the last group too.
    own = (n >= shift) & (n < shift + N)
    return n, tl.where((shift > 0) & (last > 0), own, own & (e >= VEC))
