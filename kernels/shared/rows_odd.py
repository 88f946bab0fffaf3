"""Rows that begin anywhere in 16 bytes, read and written 16 bytes at once.

If rows have an odd number of elements of 16 bits, most of them begin in the middle of 16 bytes, and the compiler reads
them element by element. Here a program reads whole groups of 16 bytes from the one in which its row begins, and ignores
what belongs to the rows beside it. It writes the groups that are all its own at once, and the elements at both ends of
the row one by one. In `shift` are the elements of the first group that belong to the row before.

A group of which an element is inside a tensor lies in the tensor's memory page, so it can be read.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def first_group(x, row, stride, VEC: tl.constexpr):
    """Return the address of the group in which a row begins."""
    return x + row.to(tl.int64) * stride // VEC * VEC


@triton.jit
def is_own(n, shift, N):
    """Return which elements after the first group's start belong to the row."""
    return (n >= shift) & (n < shift + N)


@triton.jit
def read_groups(start, shift, N, BLOCK_N: tl.constexpr, CHUNKS: tl.constexpr, VEC: tl.constexpr):
    """Return the groups of a row as a tuple of tiles (BLOCK_N,), with elements of other rows at both ends."""
    chunks = ()
    for chunk in tl.static_range(CHUNKS):
        n = chunk * BLOCK_N + tl.arange(0, BLOCK_N)
        chunks += (tl.load(start + n, mask=n // VEC * VEC < shift + N, other=0.0),)  # type: ignore[assignment]
    return chunks


@triton.jit
def read_shifted(vector, shift, N, BLOCK_N: tl.constexpr, CHUNKS: tl.constexpr):
    """Return a vector (N,) as tiles (BLOCK_N,) beside the groups of a row, 0 beside other rows; () for None."""
    chunks = ()
    if vector is not None:
        for chunk in tl.static_range(CHUNKS):
            n = chunk * BLOCK_N + tl.arange(0, BLOCK_N)
            chunks += (tl.load(vector + n - shift, mask=is_own(n, shift, N), other=0.0),)  # type: ignore[assignment]
    return chunks


@triton.jit
def write_groups(start, values, n, shift, N, VEC: tl.constexpr):
    """Write the groups of a tile that belong to the row alone."""
    group = n // VEC * VEC
    tl.store(start + n, values, mask=(group >= shift) & (group + VEC <= shift + N))


@triton.jit
def ends(shift, N, VEC: tl.constexpr):
    """Return the places of the elements of a row's first and last group, and which to write one by one."""
    e = tl.arange(0, 2 * VEC)
    last = (shift + N) // VEC * VEC
    n = tl.where(e < VEC, e, last + e - VEC)
    return n, is_own(n, shift, N) & ((e >= VEC) | ((shift > 0) & (last > 0)))
