"""The lease of a job, renewed while a worker does it."""

from __future__ import annotations

from threading import Event, Thread
from time import monotonic

from tuner.db.queue import Job, Queue
from tuner.errors import StoreError

_RENEWALS = 4
"""Renewals within the time of a lease, so that a database that is locked or unreachable for a moment loses none."""


class Lease:
    """Renews a job's lease in a thread of its own, while it is entered.

    A worker that was suspended for longer than its lease finds it lost as soon as it goes on. The queue refuses what it
    then says of the job, by its name and its try; see `tuner.db.queue`.
    """

    def __init__(self, queue: Queue, job: Job, seconds: float) -> None:
        self._queue, self._job, self._seconds = queue, job, seconds
        self._until = monotonic() + seconds
        self._taken = False
        self._over = Event()
        self._thread = Thread(target=self._renew, name=f"lease of job {job.id}", daemon=True)

    def __enter__(self) -> Lease:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    @property
    def is_lost(self) -> bool:
        """True if another worker may do the job by now."""
        return self._taken or monotonic() > self._until

    def _renew(self) -> None:
        while not (self._over.wait(self._seconds / _RENEWALS) or self._taken):
            began = monotonic()
            try:
                self._taken = not self._queue.renew(self._job, self._seconds)
                self._until = began + self._seconds
            except StoreError:
                continue  # it may be reachable again in time
