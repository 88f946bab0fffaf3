"""A replayed search that takes as long as one on a card, in a thread of the test."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from threading import Event, Thread

from tuner import recorded
from tuner.db.store import Store
from tuner.kernels.spec import Config
from tuner.measure.measurer import Measurer
from tuner.records import Comparison, Evidence, Measurement
from tuner.records.progress import InProgress
from tuner.search import Budget
from tuner.suites.suite import Entry
from tuner.tuning.effort import Effort
from tuner.tuning.events import StopToken
from tuner.tuning.run import run_search
from tuner.tuning.target import recorded_target

SPACE = "gemm-4096x4096x4096-bf16-nvidia-h200"


class SlowMeasurer:
    """A measurer that waits before each result."""

    def __init__(self, inner: Measurer, seconds: float, hurry: Event) -> None:
        self._inner, self._seconds, self._hurry = inner, seconds, hurry
        self._submitted: list[Config] = []

    @property
    def capacity(self) -> int:
        return self._inner.capacity

    @property
    def waits_for_device(self) -> bool:
        return False

    @property
    def in_progress(self) -> InProgress:
        waiting = len(self._submitted)
        return InProgress(max(0, waiting - 2), 1, self._submitted[0].text if waiting else None)

    def submit(self, config: Config) -> None:
        self._submitted.append(config)
        self._inner.submit(config)

    def next(self, timeout_s: float) -> Measurement | None:
        self._hurry.wait(self._seconds)
        self._submitted = self._submitted[1:]
        return self._inner.next(timeout_s)

    def settle(self, timeout_s: float) -> Sequence[Measurement]:
        return self._inner.settle(timeout_s)

    def compare(self, configs: Sequence[Config], rounds: int, seconds: float, seed: int) -> Comparison | Measurement:
        return self._inner.compare(configs, rounds, seconds, seed)

    def recheck(self, configs: Sequence[Config], seed: int) -> Sequence[Evidence | Measurement]:
        return self._inner.recheck(configs, seed)

    def close(self) -> None:
        self._inner.close()


@contextmanager
def slow_search(store: Store, trials: int, seconds: float) -> Iterator[Event]:
    """Search in a thread while entered; setting the event that is yielded lets it end soon.

    Args:
        seconds: time of each result.
    """
    space, hurry = recorded.load(SPACE), Event()
    target = recorded_target(space, space.problem, "auto")
    slow = replace(target, measurer=lambda: SlowMeasurer(target.measurer(), seconds, hurry))
    effort = Effort(Budget(trials, seconds=3600), force=True, sampler="random")
    stop = StopToken()

    def search() -> None:
        run_search(slow, store, Entry(space.problem.op, space.signature, space.problem), effort, stop=stop)

    thread = Thread(target=search, name="slow search")
    thread.start()
    try:
        yield hurry
    finally:
        stop.set()
        hurry.set()
        thread.join()
