"""The lock that keeps two searches from measuring on one GPU at the same time."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO


def lock_path(bus_id: str) -> Path:
    """Return the lock file of the card at a bus address. All users of the machine share it."""
    return Path(tempfile.gettempdir()) / f"triton-tuner-gpu-{bus_id.replace(':', '-')}.lock"


class GpuLock:
    """A file lock, held from construction to `release` or to the end of the process. Construction blocks.

    Args:
        path: the lock file.
        purpose: what the card is held for, shown to processes that wait.
        on_wait: called with a sentence if another process holds the lock.
    """

    def __init__(self, path: Path, purpose: str, on_wait: Callable[[str], None]) -> None:
        self._file = self._open(path)
        try:
            self._acquire(on_wait)
        except BaseException:  # Ctrl-C while it waits
            self._file.close()
            raise
        self._file.seek(0)
        self._file.truncate()
        self._file.write(f"process {os.getpid()} ({purpose})")
        self._file.flush()

    def _acquire(self, on_wait: Callable[[str], None]) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = self._file.read().strip() or "another process"
            on_wait(f"Waiting for {holder}, which measures on this GPU.")
            fcntl.flock(self._file, fcntl.LOCK_EX)

    def release(self) -> None:
        """Release the lock."""
        self._file.close()

    @staticmethod
    def _open(path: Path) -> IO[str]:
        """Open the file for reading and writing, readable and writable by all users."""
        return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+")
