"""The real worker process with torch's CPU as its device, run as `python -m cpu_worker`."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import perf_counter
from typing import Any

from tuner.kernels.spec import Config
from tuner.measure.card import CardMonitor
from tuner.measure.clock import Clock, Run, Timer
from tuner.measure.interleaved import ROUNDS_SETTINGS, RoundsSettings
from tuner.measure.messages import Measure, Recheck, Rounds, Task
from tuner.measure.processes import connect, die_with, parent
from tuner.measure.timed_vendors import VendorSettings
from tuner.measure.worker import Worker, serve
from tuner.records import Comparison, Evidence, Measurement


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


class StatedClock(HostClock):
    """A clock of launches that state their latency; the vendor's is 150 us."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._dice = random.Random(seed)

    def timer(self, runs: Sequence[Run], restore: Run | None = None) -> Timer:
        def timer(count: int) -> list[float]:
            latency_us = float(getattr(runs[0](), "latency_us", 150.0))
            return [latency_us * self._dice.gauss(1, 0.01) for _ in range(count)]

        return timer


def on_cpu(
    task: Task,
    tell: Callable[[Any], None],
    monitor: CardMonitor | None = None,
    rounds: RoundsSettings = ROUNDS_SETTINGS,
) -> Worker:
    """Return a worker on the CPU, where `torch.compile` compiles nothing: that would take seconds."""
    eager = VendorSettings(backend="eager")
    return Worker(task, tell, monitor=monitor, device="cpu", clock=HostClock(), rounds=rounds, vendors=eager)


class InProcess:
    """A measurer of the real worker in this process, for many small searches."""

    def __init__(self, worker: Worker, seed: int = 0) -> None:
        self._worker, self._seed = worker, seed
        self._waiting: deque[Config] = deque()

    @property
    def capacity(self) -> int:
        return 4

    @property
    def waits_for_device(self) -> bool:
        return False

    def submit(self, config: Config) -> None:
        self._waiting.append(config)

    def next(self, timeout_s: float) -> Measurement | None:
        self._seed += 1
        return self._worker.measure(Measure(self._waiting.popleft(), None, self._seed)) if self._waiting else None

    def settle(self, timeout_s: float) -> Sequence[Measurement]:
        return ()

    def recheck(self, configs: Sequence[Config], seed: int) -> Sequence[Evidence | Measurement]:
        return [self._worker.recheck(Recheck(config, seed)) for config in configs]

    def compare(self, configs: Sequence[Config], rounds: int, seconds: float, seed: int) -> Comparison | Measurement:
        return self._worker.compare(Rounds(tuple(configs), rounds, seconds, seed))

    def close(self) -> None:
        pass


if __name__ == "__main__":
    die_with(parent())
    with suppress(EOFError):
        serve(connect(), on_cpu)
