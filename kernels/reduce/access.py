"""Accesses to rows: the elements of each, and whether runs of them begin before a row does."""

from __future__ import annotations

from math import gcd
from typing import Any, NamedTuple

ALIGNED_BYTES = 16
"""Bytes of the widest access, which is aligned to as many."""
NARROW_BYTES = 4
"""Bytes of the widest access to rows up to which it is faster to read whole runs, and to leave out what is beside the
row."""
FEWEST_RUNS = 4
"""Fewest runs of a row for which that is so."""


class Access(NamedTuple):
    """Number of elements that a thread reads at once, and whether runs of them begin before a row's first element."""

    run: int
    shifted: bool


def along_rows(x: Any, M: int, N: int) -> Access:
    """Return how a reduction along rows of x reads: M rows of N elements."""
    size, stride = x.dtype.itemsize, x.stride(0) if M > 1 else 0
    if x.data_ptr() % ALIGNED_BYTES:
        return Access(1, False)
    # What is read beside a row is of the row after it, or of the gap, so rows may not overlap.
    if is_shifted(size, N, stride) and (M == 1 or stride >= N):
        return Access(ALIGNED_BYTES // size, True)
    return Access(gcd(ALIGNED_BYTES // size, N, stride), False)


def over_rows(x: Any, M: int, N: int) -> Access:
    """Return how a reduction over rows of x reads: each column in M rows."""
    if x.data_ptr() % ALIGNED_BYTES:
        return Access(1, False)
    return Access(gcd(ALIGNED_BYTES // x.dtype.itemsize, N, x.stride(0) if M > 1 else 0), False)


def is_shifted(itemsize: int, N: int, stride: int) -> bool:
    """Return whether rows of N elements, a stride apart, are read in runs that begin before the row does."""
    width = ALIGNED_BYTES // itemsize
    return gcd(width, N, stride) * itemsize <= NARROW_BYTES and width * FEWEST_RUNS <= N


def reach(itemsize: int, N: int) -> int:
    """Return the number of columns from the first run of a dense row to the end of the row, at most."""
    return N + ALIGNED_BYTES // itemsize - 1 if is_shifted(itemsize, N, N) else N
