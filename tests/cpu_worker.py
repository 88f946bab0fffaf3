"""The real worker process with torch's CPU as its device, run as `python -m cpu_worker`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from time import perf_counter
from typing import Any

from tuner.measure.card import CardMonitor
from tuner.measure.clock import Clock, Run, Timer
from tuner.measure.interleaved import ROUNDS_SETTINGS, RoundsSettings
from tuner.measure.messages import Task
from tuner.measure.processes import connect, die_with, parent
from tuner.measure.worker import Worker, serve


class HostClock(Clock):
    """Clock of the host, which is the device here."""

    def __init__(self, copies: int = 1) -> None:
        self._copies = copies

    def operand_sets(self, bytes: int) -> int:
        return self._copies

    def timer(self, runs: Sequence[Run], restore: Run | None = None) -> Timer:
        def timer(count: int) -> list[float]:
            samples = []
            for _ in range(count):
                if restore is not None:
                    restore()
                started = perf_counter()
                for run in runs:
                    run()
                samples.append((perf_counter() - started) * 1e6 / len(runs))
            return samples

        return timer

    def wait(self) -> None:
        pass


def on_cpu(
    task: Task,
    tell: Callable[[Any], None],
    monitor: CardMonitor | None = None,
    rounds: RoundsSettings = ROUNDS_SETTINGS,
) -> Worker:
    """Return a worker on the CPU."""
    return Worker(task, tell, monitor=monitor, device="cpu", clock=HostClock(), rounds=rounds)


if __name__ == "__main__":
    die_with(parent())
    with suppress(EOFError):
        serve(connect(), on_cpu)
