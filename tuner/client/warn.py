"""Warnings that are logged once."""

from __future__ import annotations

import logging

_log = logging.getLogger("tuner")


class WarnOnce:
    """A logger of warnings that logs each line once.

    Args:
        limit: number of different lines that are logged.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._logged: set[str] = set()

    def __call__(self, line: str) -> None:
        """Log a line, unless it was logged before."""
        if line not in self._logged and len(self._logged) < self._limit:
            self._logged.add(line)
            _log.warning("%s", line)

    def clear(self) -> None:
        """Forget the lines, so that each is logged again."""
        self._logged.clear()
