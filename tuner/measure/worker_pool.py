"""The worker processes of one GPU, kept from one search to the next."""

from __future__ import annotations

import os
from threading import Lock

from tuner.errors import MeasureError
from tuner.measure.device import bus_id
from tuner.measure.messages import MeasureRooflineLimits, Unable
from tuner.measure.processes import BUS_ID_VARIABLE, Child
from tuner.records import RooflineLimits

WORKER = "tuner.measure.worker"
"""Module that a worker process runs."""


class WorkerPool:
    """The worker processes of one GPU: at most one in use, and at most one that waits for a task.

    Args:
        gpu: index among the GPUs visible to this process.
        module: run by the processes.
        python: interpreter of the processes; None is that of this process.
        watches: whether a worker discards rounds while other processes use the card. False if two pools take turns on
            it: then their caller watches the card.
    """

    def __init__(self, gpu: int, module: str = WORKER, python: str | None = None, *, watches: bool = True) -> None:
        self._gpu, self._module, self._python, self._watches = gpu, module, python, watches
        self.turn = Lock()
        """Held by the measurer whose worker is in use."""
        self.waiting: Child | None = None

    def prepare(self) -> None:
        """Start a worker that waits for a task, unless there is one."""
        if self.waiting is None:
            self.waiting = self._start()

    def take(self) -> Child:
        """Return the waiting worker, or a new one."""
        worker, self.waiting = self.waiting, None
        if worker is not None and not worker.runs:
            worker.kill()
            worker = None
        return worker or self._start()

    def give_back(self, worker: Child) -> None:
        """Keep an idle worker for the next task, or end it if a fresh one waits."""
        if self.waiting is None:
            self.waiting = worker
        else:
            worker.kill()

    def close(self) -> None:
        """End the waiting worker."""
        if self.waiting is not None:
            self.waiting.kill()
        self.waiting = None

    def _start(self) -> Child:
        return start_worker(self._gpu, self._module, self._python, watches=self._watches)


def start_worker(gpu: int, module: str = WORKER, python: str | None = None, *, watches: bool = True) -> Child:
    """Start a worker without a task: it imports its modules, creates its CUDA context, and waits."""
    card = bus_id(gpu) if watches else ""
    return Child(module, {"CUDA_VISIBLE_DEVICES": visible_device(gpu), BUS_ID_VARIABLE: card}, python)


def measure_roofline_limits(worker: Child) -> RooflineLimits:
    """Measure the roofline limits of a card by a worker that has no task yet.

    Raises:
        MeasureError: the worker died, or the card lacks the memory.
    """
    worker.send(MeasureRooflineLimits())
    try:
        answer = worker.receive()
    except EOFError:
        raise MeasureError(f"the GPU worker did not start: {worker.exit_text()}") from None
    if isinstance(answer, Unable):
        raise MeasureError(answer.why)
    assert isinstance(answer, RooflineLimits)
    return answer


def visible_device(gpu: int) -> str:
    """Return `CUDA_VISIBLE_DEVICES` for a child that sees one of the cards visible to this process."""
    visible = [entry for entry in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if entry]
    return visible[gpu] if visible else str(gpu)
