"""Sectors of device memory that the lanes of a warp touch.

Memory moves sectors of 32 bytes. A request of a warp is served best if its lanes touch as few as their bytes fill.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tuner.profiling.evaluate import Site
from tuner.profiling.integers import Lanes

SECTOR = 32
"""Bytes of a sector."""
LINE = 128
"""Bytes of a line of L1, which serves one line at a time."""


def requests(site: Site) -> Lanes:
    """Return the addresses of the requests of a site that have an active lane, by request and lane."""
    if not site.addresses:
        return np.empty((0, 1), np.int64)
    rows = np.concatenate(site.addresses)
    active: Lanes = rows[(rows >= 0).any(axis=1)]
    return active


def sectors(rows: Lanes, width: int) -> tuple[int, int]:
    """Return the number of sectors that requests touch, and the fewest that could hold their distinct bytes.

    Args:
        rows: address by request and lane, -1 for an inactive lane.
        width: bytes of a lane.
    """
    touched, distinct = _distinct(_pieces(rows, width, SECTOR)), _distinct(rows) * width
    return int(touched.sum()), int(-(-distinct // SECTOR).sum())


def passes(rows: Lanes, width: int) -> int:
    """Return the number of lines of L1 that requests touch, each request for itself."""
    return int(_distinct(_pieces(rows, width, LINE)).sum())


def footprint(sites: Sequence[Site]) -> int:
    """Return the bytes of all distinct sectors that sites touch, as far as their addresses are kept."""
    kept = [_pieces(requests(site), site.width, SECTOR).ravel() for site in sites if site.addresses and site.width]
    return SECTOR * int(_distinct(np.concatenate(kept)[None])[0]) if kept else 0


def _pieces(rows: Lanes, width: int, size: int) -> Lanes:
    """Return the numbers of the pieces of memory of `size` bytes that each request touches, -1 for none."""
    offsets = np.arange(0, max(width, 1), min(size, max(width, 1)))
    starts = rows[:, :, None] + offsets
    last = rows[:, :, None] + max(width, 1) - 1
    pieces = np.concatenate([starts // size, last // size], axis=2).reshape(len(rows), -1)
    inactive = np.repeat(rows < 0, len(offsets) + 1, axis=1)
    return np.where(inactive, -1, pieces)


def _distinct(numbers: Lanes) -> Lanes:
    """Return the number of distinct values of each row, without -1."""
    ordered = np.sort(numbers, axis=1)
    new: Lanes = (np.diff(ordered, axis=1, prepend=-1) != 0) & (ordered >= 0)
    counts: Lanes = new.sum(axis=1)
    return counts
