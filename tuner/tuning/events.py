"""Progress of tuning and the request to stop: nothing below the command line prints or handles signals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

from tuner.kernels.spec import Problem
from tuner.records import Measurement

if TYPE_CHECKING:
    from tuner.db.queue import Job
    from tuner.records import StoredAnswer
    from tuner.records.retune import Finding, Retune
    from tuner.tuning.tuned import Tuned


class Events:
    """Receives the progress of tuning. Each method does nothing; override those of interest.

    Searches of several problems run in threads of their own, and methods are called from those threads. `problem` is
    None in a joint search, which measures all its problems together.
    """

    def note(self, message: str) -> None:
        """Receive a sentence about the search, such as the process that it waits for."""

    def search_started(self, problem: Problem | None, trials: int, known: int) -> None:
        """Receive the start of a search.

        Args:
            trials: number of configs that the search measures at most, known ones included.
            known: number of configs with a stored measurement of an earlier run.
        """

    def trial(self, problem: Problem | None, measurement: Measurement) -> None:
        """Receive a measurement when it ends."""

    def round(self, problem: Problem | None, rounds: int, contenders: int) -> None:
        """Receive the progress of the interleaved comparison: its rounds so far, and the configs still in it."""

    def search_ended(self, problem: Problem | None) -> None:
        """Receive the end of a search, whether it found an answer or not."""

    def tuned(self, tuned: Tuned, done: int, total: int) -> None:
        """Receive the outcome of one of several problems: the `done`-th of `total`."""

    def retune_started(self, retune: Retune) -> None:
        """Receive the start of a retune, or that an interrupted one goes on: with its plan and findings so far."""

    def found(self, finding: Finding, done: int, total: int) -> None:
        """Receive a finding of a retune: the `done`-th of `total`."""

    def job_done(self, job: Job, stored: StoredAnswer) -> None:
        """Receive the answer of a job."""

    def job_failed(self, job: Job, reason: str, final: bool) -> None:
        """Receive the failure of a job; unless it is `final`, the job is tried again."""


class StopToken:
    """A request to stop, which the work polls. Measurements taken so far are kept.

    Args:
        requested: polled too, such as `threading.Event().is_set`.
    """

    def __init__(self, requested: Callable[[], bool] = lambda: False) -> None:
        self._requested = requested
        self._set = False
        self._watchers = 0
        self._lock = Lock()

    def __call__(self) -> bool:
        """Return whether to stop."""
        return self._set or self._requested()

    def set(self) -> None:
        """Request the stop."""
        self._set = True

    @property
    def is_watched(self) -> bool:
        """True if some work polls the token now, so that setting it has an effect soon."""
        return self._watchers > 0

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Mark the token as polled while entered."""
        with self._lock:
            self._watchers += 1
        try:
            yield
        finally:
            with self._lock:
                self._watchers -= 1
