"""How rows are read: the elements of one access, and whether rows begin at any element."""

from __future__ import annotations

from math import gcd
from typing import Any, NamedTuple

ALIGNED_BYTES = 16
"""Bytes of the widest access, which is aligned to as many."""
NARROW_BYTES = 4
"""Bytes of an access from which on reading whole runs and leaving out what is beside the row is faster. Source: a warp
moves 128 bytes with accesses of 4 bytes."""


class Access(NamedTuple):
    """Elements that a thread reads at once, and whether runs of them begin before a row's first element."""

    run: int
    shifted: bool


def along_rows(x: Any, M: int, N: int) -> Access:
    """Return how a reduction along rows of x reads: M rows of N elements."""
    widest = ALIGNED_BYTES // x.dtype.itemsize
    if x.data_ptr() % ALIGNED_BYTES:
        return Access(1, False)
    run = gcd(widest, N, *([x.stride(0)] if M > 1 else []))
    # What is read beside a row is of the row after it, or of the gap, so that rows may not overlap.
    if run * x.dtype.itemsize <= NARROW_BYTES and 4 * widest <= N and (M == 1 or x.stride(0) >= N):
        return Access(widest, True)
    return Access(run, False)


def over_rows(x: Any, M: int, N: int) -> Access:
    """Return how a reduction over rows of x reads: each column in M rows."""
    if x.data_ptr() % ALIGNED_BYTES:
        return Access(1, False)
    return Access(gcd(ALIGNED_BYTES // x.dtype.itemsize, N, *([x.stride(0)] if M > 1 else [])), False)
