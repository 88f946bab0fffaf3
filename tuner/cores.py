"""How many cores there are to compile with, which in a container is fewer than the machine has."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from math import ceil
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")


def usable() -> int:
    """Those this process may run on, and no more than its control group is given the time of (Linux, version 2)."""
    pinned = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([pinned, *map(ceil, _quotas(_CGROUPS, _own_group()))]))


def _own_group() -> str:
    """This process's, by its place below the root; the root where nobody says."""
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            if line.startswith("0::"):
                return line[3:].strip("/")
    return ""


def _quotas(root: Path, group: str) -> Iterator[float]:
    """Cores' worth of time that the group and those above it may take; of those that are limited."""
    place = root / group
    for folder in (place, *place.parents):
        with suppress(OSError, ValueError):  # no such file, or "max"
            quota, period = (folder / "cpu.max").read_text().split()
            yield int(quota) / int(period)
        if folder == root:
            return
