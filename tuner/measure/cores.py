"""Who has the cores: the compilers, as many as there are, which in a container is fewer than the machine has."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ContextDecorator, suppress
from functools import cache
from math import ceil
from pathlib import Path
from threading import Lock
from typing import Any

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


class _OneThread(ContextDecorator):
    """Linear algebra is done by the thread that calls it, until the last of those that are inside leaves.

    A BLAS with a thread a core waits, in every call, for all of them to run, and here compilers have the cores: 200
    proposals of the sampler took 9.9 s, and 0.9 s in one thread; alone 0.4 s either way (2 cores, four other processes,
    2026-11-28). How many there may be is one number for the whole process, which is why those inside are counted.
    """

    def __init__(self) -> None:
        self._lock, self._inside = Lock(), 0
        self._limit: Any = None

    def __enter__(self) -> None:
        with self._lock:
            self._limit = self._limit or _pools().limit(limits=1, user_api="blas")
            self._inside += 1

    def __exit__(self, *raised: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._limit.restore_original_limits()
                self._limit = None


@cache
def _pools() -> Any:
    """The thread pools of the libraries that are loaded by now, numpy's among them; asking anew would take 1 ms."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


ONE_THREAD = _OneThread()
