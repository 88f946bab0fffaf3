"""Accesses to rows: the elements of each, and whether runs of them begin before a row does."""

from __future__ import annotations

from math import gcd
from typing import Any, NamedTuple

from tuner.kernels.shared.tiling import ALIGNED_BYTES as ALIGNED_BYTES
from tuner.kernels.shared.tiling import LINE_BYTES

NARROW_BYTES = 4
"""Bytes of the widest access to rows up to which it is faster to read whole runs, and to leave out what is beside the
row."""
FEWEST_RUNS = 4
"""Fewest runs of a row for which that is so."""
FEWEST_LINES = 64
"""Fewest cache lines of a row from which runs begin at that in which the row begins."""


class Access(NamedTuple):
    """Number of elements that a thread reads at once.

    `align`: if not 0, the first access to a row begins at a multiple of as many elements, before the row does.
    """

    run: int
    align: int


def along_rows(x: Any, M: int, N: int) -> Access:
    """Return how a reduction along rows of x reads: M rows of N elements."""
    size, stride = x.dtype.itemsize, x.stride(0) if M > 1 else 0
    if x.data_ptr() % ALIGNED_BYTES:
        return Access(1, 0)
    # What is read beside a row is of the row after it, or of the gap, so rows may not overlap.
    if (align := alignment(size, N, stride)) and (M == 1 or stride >= N):
        return Access(ALIGNED_BYTES // size, align)
    return Access(gcd(ALIGNED_BYTES // size, N, stride), 0)


def over_rows(x: Any, M: int, N: int) -> Access:
    """Return how a reduction over rows of x reads: each column in M rows."""
    if x.data_ptr() % ALIGNED_BYTES:
        return Access(1, 0)
    return Access(gcd(ALIGNED_BYTES // x.dtype.itemsize, N, x.stride(0) if M > 1 else 0), 0)


def alignment(itemsize: int, N: int, stride: int) -> int:
    """Return the elements to whose multiples first accesses are aligned; 0 if rows of N elements begin at accesses."""
    width = ALIGNED_BYTES // itemsize
    if gcd(width, N, stride) * itemsize > NARROW_BYTES or width * FEWEST_RUNS > N:
        return 0
    return (LINE_BYTES if N * itemsize >= FEWEST_LINES * LINE_BYTES else ALIGNED_BYTES) // itemsize


def reach(itemsize: int, N: int) -> int:
    """Return the number of columns from the first access to a dense row to the end of the row, at most."""
    return N + max(0, alignment(itemsize, N, N) - 1)
