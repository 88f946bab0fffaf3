"""Processes on this machine: one at a time on each GPU, or several that replay recorded spaces."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from typing import Self

from tuner.errors import NoDevice, UsageError
from tuner.fleet.command import run
from tuner.fleet.scheduler import SETTINGS, Wanted, Watch
from tuner.fleet.task import Ended, Task
from tuner.measure import cores, device
from tuner.tuning.events import StopToken
from tuner.tuning.gpu import AUTO
from tuner.tuning.lanes import chosen_gpus
from tuner.tuning.other_gpus import gpu_here


@dataclass(frozen=True)
class _Slot:
    """Room for one process at a time."""

    name: str
    cores: frozenset[int]
    """Cores of its own, so that the compile pools of several processes share those of the machine."""
    environment: Mapping[str, str] = field(default_factory=dict)


class LocalScheduler:
    """Runs tasks as processes of this machine. One that is killed is run again.

    Args:
        slots: places for a process.
    """

    name = "local"

    def __init__(self, slots: Sequence[_Slot]) -> None:
        self._slots = slots

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def submit_all(self, tasks: Sequence[Task], stop: StopToken, watch: Watch) -> Iterator[Ended]:
        """Run each task on the next free slot."""
        free, halt, under_way = SimpleQueue[_Slot](), StopToken(stop), dict[str, str]()
        for slot in self._slots:
            free.put(slot)

        def run_one(task: Task) -> Ended | None:
            slot = free.get()
            try:
                under_way[task.name] = slot.name
                return None if halt() else _run_on(slot, task, halt)
            finally:
                del under_way[task.name]
                free.put(slot)

        with ThreadPoolExecutor(len(self._slots)) as threads:
            try:
                left = {threads.submit(run_one, task) for task in tasks}
                while left:
                    done, left = wait(left, SETTINGS.poll_s, FIRST_COMPLETED)
                    watch(dict(under_way))
                    yield from (ended for future in done if (ended := future.result()) is not None)
            finally:
                halt.set()
                threads.shutdown(wait=False, cancel_futures=True)


def _run_on(slot: _Slot, task: Task, halt: StopToken) -> Ended:
    """Run a task on a slot; if its process is killed, again, and after several times give it up."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, slot.cores)  # of this thread, and of the processes that it starts
    placed = replace(task, environment={**task.environment, **slot.environment})
    for _ in range(SETTINGS.tries):
        ended = run(placed, halt, where=slot.name, logs=False)
        if ended.code is None or ended.code >= 0 or halt():
            break
    else:
        assert ended.code is not None
        killed = f"killed by {signal.Signals(-ended.code).name} in each of {SETTINGS.tries} tries"
        ended = replace(ended, code=None, error=killed)
    return replace(ended, task=task)


def scheduler(place: str, wanted: Wanted) -> LocalScheduler:
    """Return the scheduler of `local[:N]`: N processes at a time, else one for each GPU or, without GPUs, each core.

    Raises:
        UsageError: the place is no number from 1.
        NoDevice: there is no GPU, and the tasks need one.
    """
    if not re.fullmatch("[1-9][0-9]{0,3}", place or "1"):
        raise UsageError(f"--on local takes a number of processes from 1, such as local:4, not {place[:40]!r}")
    number = int(place) if place else None
    if not wanted.gpus:
        names = [f"process {one}" for one in range(number or cores.usable())]
        return LocalScheduler([_Slot(name, share) for name, share in zip(names, _shares(len(names)), strict=True)])
    gpus = chosen_gpus("all" if wanted.chosen == AUTO and device.count() else wanted.chosen)[:number]
    if not gpus:
        raise NoDevice(f"--on local needs a GPU for its tasks, and there is no {gpu_here()}; --replay auto needs none")
    return LocalScheduler(
        [
            _Slot(f"GPU {gpu}", share, {"CUDA_VISIBLE_DEVICES": _visible(gpu)})
            for gpu, share in zip(gpus, _shares(len(gpus)), strict=True)
        ]
    )


def _visible(gpu: int) -> str:
    """Return the name of a GPU for `CUDA_VISIBLE_DEVICES`, which may already hide some."""
    shown = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return shown.split(",")[gpu].strip() if shown else str(gpu)


def _shares(number: int) -> list[frozenset[int]]:
    """Return this number of sets of neighbouring cores; they overlap if there are fewer cores."""
    ours = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [*range(os.cpu_count() or 1)]
    if len(ours) < number:
        return [frozenset([ours[one % len(ours)]]) for one in range(number)]
    return [frozenset(ours[len(ours) * one // number : len(ours) * (one + 1) // number]) for one in range(number)]
