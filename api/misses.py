"""What was asked and missed, counted in memory and written down now and then."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from tuner.db.store import Store

Missed = tuple[str, str, str]
"""Op, problem text and device."""
_MOST = 10_000


class Misses:
    """Counts of what was missed since the last flush; of so many distinct questions at most."""

    def __init__(self, store: Store, unlisted: Callable[[], object]) -> None:
        self._store, self._unlisted = store, unlisted
        self._counts: dict[Missed, int] = {}
        self._lock = Lock()

    def add(self, missed: Missed, count: int = 1) -> None:
        """Somebody asked, and there was no answer."""
        with self._lock:
            if missed in self._counts or len(self._counts) < _MOST:
                self._counts[missed] = self._counts.get(missed, 0) + count
                return
        self._unlisted()

    def flush(self) -> None:
        """Adds the counts to the store's.

        Raises:
            StoreError: it cannot be written; the counts are kept for the next time.
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
