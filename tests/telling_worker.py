"""The real worker process on the CPU, whose launches state their latency: `python -m telling_worker`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from cpu_worker import StatedClock

from tuner.measure.messages import Task
from tuner.measure.processes import connect, die_with, parent
from tuner.measure.worker import Worker, serve


def telling(task: Task, tell: Callable[[Any], None]) -> Worker:
    return Worker(task, tell, device="cpu", clock=StatedClock(1))


if __name__ == "__main__":
    die_with(parent())
    with suppress(EOFError):
        serve(connect(), telling)
