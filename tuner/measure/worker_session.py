"""One task served by a worker process: the stage that the worker reports, and the deadline of that stage."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic
from typing import Any

from tuner.errors import KernelFault, MeasureError
from tuner.kernels.spec import Config
from tuner.measure.messages import VENDOR_STAGE, Examine, Measure, Ready, Recheck, Rounds, Stage, Task, Unable
from tuner.measure.processes import Child
from tuner.records import Measurement, Outcome

_STARTING, _IDLE = Stage("start"), Stage("idle")


@dataclass(frozen=True)
class WorkerSettings:
    """Deadlines of a worker process, and the configs kept ready for it."""

    start_s: float = 120.0
    """Time to import torch, create a context and load a task, in s. Source: about 5 s; longer from a cold disk."""
    stage_s: float = 10.0
    """Time for each stage of a request, in s. Source: chosen; a stage of an ordinary config takes less than 1 s."""
    vendor_s: float = 180.0
    """Time to compile and check one vendor, in s. Source: `torch.compile` takes up to 30 s, a library that compiles for
    the card with nvcc about a minute."""
    compiled_ahead: int = 4
    """Number of compiled configs that may wait for the worker. Source: chosen, so that the worker never waits."""


WORKER_SETTINGS = WorkerSettings()


class WorkerLost(Exception):
    """The worker process died or was killed during a request.

    Args:
        stage: the last that it reported.
        by_others: whether another process killed it, such as the system when host memory ran out.
    """

    def __init__(self, outcome: Outcome, stage: Stage, text: str, *, by_others: bool = False) -> None:
        super().__init__(text)
        self.outcome, self.stage, self.by_others = outcome, stage, by_others

    def measurement(self, config: Config) -> Measurement:
        """Return the failed measurement of the config that was being measured."""
        return Measurement(config, self.outcome, stage=self.stage.name, error=str(self))


class WorkerSession:
    """A worker process with a task, from loading the task on.

    Args:
        process: a worker that waits for a task.
    """

    def __init__(self, process: Child, task: Task, settings: WorkerSettings = WORKER_SETTINGS) -> None:
        self.process = process
        self._settings = settings
        process.send(task)
        self._stage = _STARTING
        self._end = monotonic() + settings.start_s

    @property
    def starting(self) -> bool:
        """True until the worker has loaded the task."""
        return self._stage is _STARTING

    @property
    def idle(self) -> bool:
        """True if the worker waits for a request."""
        return self._stage is _IDLE

    @property
    def deadline(self) -> float | None:
        """End of the present stage, as a time of `monotonic()`; None if the worker is idle."""
        return None if self.idle else self._end

    def request(self, request: Examine | Measure | Recheck | Rounds) -> None:
        """Send a request to the idle worker."""
        self.process.send(request)
        self._enter(Stage("launch"))

    def receive(self) -> Any:
        """Receive one message. Return an answer, or None for a report of progress.

        Raises:
            WorkerLost: the worker died.
            MeasureError: it cannot serve the task on this card.
            KernelFault: a function of the kernel raises or returns a wrong value.
        """
        try:
            message = self.process.receive()
        except EOFError:
            text = f"the worker process died: {self.process.exit_text()}"
            raise WorkerLost(Outcome.CRASHED, self._stage, text, by_others=self.process.killed) from None
        if isinstance(message, Unable):
            raise (KernelFault if message.kernel_fault else MeasureError)(message.why)
        if isinstance(message, Stage):
            self._enter(message)
            return None
        if isinstance(message, Ready):
            self.become_idle()
            return None
        return message

    def check_deadline(self) -> None:
        """Raise WorkerLost with outcome `timeout` if the present stage is over its deadline."""
        if not self.idle and monotonic() >= self._end:
            text = f"stage {self._stage.name} took longer than its deadline; the worker process was killed"
            raise WorkerLost(Outcome.TIMEOUT, self._stage, text)

    def become_idle(self) -> None:
        """Mark the request as answered."""
        self._stage = _IDLE

    def _enter(self, stage: Stage) -> None:
        self._stage = stage
        self._end = monotonic() + (self._settings.vendor_s if stage.name == VENDOR_STAGE else self._settings.stage_s)
