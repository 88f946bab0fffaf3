"""Use of the CPU cores: the number usable in a container, and linear algebra in one thread beside compilers."""

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
    """Return the number of cores this process may use, at least 1.

    The limits are the affinity of the process and the CPU quota of its control group (Linux, version 2).
    """
    pinned = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([pinned, *map(ceil, _quotas(_CGROUPS, _own_group()))]))


def _own_group() -> str:
    """Return the path of this process's control group below the root; "" if it is unknown."""
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            if line.startswith("0::"):
                return line[3:].strip("/")
    return ""


def _quotas(root: Path, group: str) -> Iterator[float]:
    """Yield the CPU quotas of a control group and its ancestors, in cores. Groups without a quota are left out."""
    place = root / group
    for folder in (place, *place.parents):
        with suppress(OSError, ValueError):  # no such file, or "max"
            quota, period = (folder / "cpu.max").read_text().split()
            yield int(quota) / int(period)
        if folder == root:
            return


class _OneThread(ContextDecorator):
    """Limit of BLAS to the calling thread, for as long as any user is inside.

    BLAS with a thread a core waits for all its threads in each call, and compilers occupy the cores. The limit is one
    number for the whole process, so users are counted.
    """

    def __init__(self) -> None:
        self._lock, self._users = Lock(), 0
        self._limit: Any = None

    def __enter__(self) -> None:
        with self._lock:
            self._limit = self._limit or _pools().limit(limits=1, user_api="blas")
            self._users += 1

    def __exit__(self, *raised: object) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._limit.restore_original_limits()
                self._limit = None


@cache
def _pools() -> Any:
    """Return the thread pools of the loaded libraries, numpy's among them. Cached: finding them takes 1 ms."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


ONE_THREAD = _OneThread()
"""Context manager and decorator under which BLAS uses one thread."""
