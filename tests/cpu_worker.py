"""The real worker with torch's CPU for a card: run as `python -m cpu_worker` in the place of the one on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from time import perf_counter
from typing import Any

from tuner.measure.clock import Clock
from tuner.measure.messages import Task
from tuner.measure.processes import connect, die_with, parent
from tuner.measure.worker import Worker, serve


class HostClock(Clock):
    """Times on the host, which is the device here."""

    def __init__(self) -> None:
        self.prepared = 0

    def samples(
        self, launch: Callable[[], object], count: int, prepare: Callable[[], None] | None = None
    ) -> list[float]:
        found = []
        for _ in range(count):
            if prepare is not None:
                prepare()
                self.prepared += 1
            started = perf_counter()
            launch()
            found.append((perf_counter() - started) * 1e6)
        return found

    def wait(self) -> None:
        pass


def on_cpu(task: Task, tell: Callable[[Any], None]) -> Worker:
    """A worker on the CPU."""
    return Worker(task, tell, device="cpu", clock=HostClock())


if __name__ == "__main__":
    die_with(parent())
    with suppress(EOFError):
        serve(connect(), on_cpu)
