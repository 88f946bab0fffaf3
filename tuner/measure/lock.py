"""One search at a time on a GPU: two that share a card would measure each other."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO


def lock_path(card: str) -> Path:
    """The file that stands for the card at this bus address, for all users of the machine."""
    return Path(tempfile.gettempdir()) / f"triton-tuner-gpu-{card.replace(':', '-')}.lock"


class GpuLock:
    """Held from construction to `release`, or to the end of the process, however that comes.

    `what` tells others what it is held for.
    """

    def __init__(self, path: Path, what: str, on_wait: Callable[[str], None]) -> None:
        self._file = self._open(path)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = self._file.read().strip() or "another process"
            on_wait(f"Waiting for {holder}, which measures on this GPU.")
            fcntl.flock(self._file, fcntl.LOCK_EX)
        self._file.seek(0)
        self._file.truncate()
        self._file.write(f"process {os.getpid()} ({what})")
        self._file.flush()

    def release(self) -> None:
        """Lets the next one in."""
        self._file.close()

    @staticmethod
    def _open(path: Path) -> IO[str]:
        everybody = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        return os.fdopen(everybody, "r+")
