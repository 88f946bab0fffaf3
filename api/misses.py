"""Counts of missed queries, kept in memory and written at an interval."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from tuner.db.store import Store

Missed = tuple[str, str, str]
"""Op, problem text and device."""


class Misses:
    """Counts of missed queries since the last flush.

    Args:
        unlisted: called for each miss that is not counted, since `limit` different ones are.
        limit: largest number of different missed queries.
    """

    def __init__(self, store: Store, unlisted: Callable[[], object], limit: int) -> None:
        self._store, self._unlisted, self._limit = store, unlisted, limit
        self._counts: dict[Missed, int] = {}
        self._lock = Lock()

    def add(self, missed: Missed, count: int = 1) -> None:
        """Count a missed query."""
        with self._lock:
            if missed in self._counts or len(self._counts) < self._limit:
                self._counts[missed] = self._counts.get(missed, 0) + count
                return
        self._unlisted()

    def flush(self) -> None:
        """Add the counts to the store's.

        Raises:
            StoreError: the store cannot be written; the counts are kept for the next flush.
        """
        with self._lock:
            counts, self._counts = self._counts, {}
        if not counts:
            return
        try:
            self._store.count_requests(counts)
        except BaseException:
            for missed, count in counts.items():
                self.add(missed, count)
            raise
