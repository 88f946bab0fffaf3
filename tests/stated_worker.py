"""The real worker process on the CPU, whose launches take 150 us times `STATED_FACTOR`: `python -m stated_worker`."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from cpu_worker import HostClock

from tuner.measure.clock import Run, Timer
from tuner.measure.messages import Task
from tuner.measure.processes import connect, die_with, parent
from tuner.measure.worker import Worker, serve


class FactorClock(HostClock):
    def timer(self, runs: Sequence[Run], restore: Run | None = None) -> Timer:
        dice, factor = random.Random(1), float(os.environ.get("STATED_FACTOR", "1"))
        return lambda count: [150.0 * factor * dice.gauss(1, 0.01) for _ in range(count)]


def stated(task: Task, tell: Callable[[Any], None]) -> Worker:
    return Worker(task, tell, device="cpu", clock=FactorClock())


if __name__ == "__main__":
    die_with(parent())
    with suppress(EOFError):
        serve(connect(), stated)
