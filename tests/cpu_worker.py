"""The real worker with torch's CPU for a card: run as `python -m cpu_worker` in the place of the one on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from time import perf_counter
from typing import Any

from tuner.measure.card import CardMonitor
from tuner.measure.clock import Clock, Run, Timer
from tuner.measure.messages import Task
from tuner.measure.processes import connect, die_with, parent
from tuner.measure.worker import Worker, serve


class HostClock(Clock):
    """Times on the host, which is the device here."""

    def __init__(self, copies: int = 1) -> None:
        self._copies = copies

    def copies(self, bytes: int) -> int:
        return self._copies

    def timer(self, runs: Sequence[Run], restore: Run | None = None) -> Timer:
        def timer(count: int) -> list[float]:
            found = []
            for _ in range(count):
                if restore is not None:
                    restore()
                started = perf_counter()
                for run in runs:
                    run()
                found.append((perf_counter() - started) * 1e6 / len(runs))
            return found

        return timer

    def wait(self) -> None:
        pass


def on_cpu(task: Task, tell: Callable[[Any], None], card: CardMonitor | None = None) -> Worker:
    """A worker on the CPU."""
    return Worker(task, tell, card=card, device="cpu", clock=HostClock())


if __name__ == "__main__":
    die_with(parent())
    with suppress(EOFError):
        serve(connect(), on_cpu)
