"""A scheduler of a fleet that runs each task at once, the last first, and loses those that a test names."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Self

import pytest
from commands import run_tuner

from tuner.fleet import scheduler as schedulers
from tuner.fleet.scheduler import Scheduler, Wanted, Watch
from tuner.fleet.task import Ended, Task
from tuner.tuning.events import StopToken


class Scripted:
    """Runs tasks as forks.

    Args:
        lost: texts in the names of the tasks that are given up.
        most: number of tasks after which this process gets a signal to stop.
        stop: that signal.
    """

    name = "scripted"

    def __init__(self, *lost: str, most: int | None = None, stop: signal.Signals = signal.SIGINT) -> None:
        self._lost, self._most, self._stop = lost, most, stop
        self.tasks: list[Task] = []
        self.wanted = Wanted()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def submit_all(self, tasks: Sequence[Task], stop: StopToken, watch: Watch) -> Iterator[Ended]:
        self.tasks += tasks
        for count, task in enumerate(reversed(tasks)):
            watch({task.name: "node-1"})
            if count == self._most:
                signal.raise_signal(self._stop)
                yield Ended(task, 130, "node-1")
            elif any(text in task.name for text in self._lost):
                yield Ended(task, None, "node-1", error="node-1 was lost 3 times")
            elif not stop():
                yield self._run(task)

    def _run(self, task: Task) -> Ended:
        done = run_tuner(*task.words, environment=task.environment)
        output = None
        with suppress(ValueError):
            output = json.loads(done.stdout)
        error = (done.stderr.splitlines() or [""])[-1].removeprefix("tuner: ") if done.returncode else ""
        return Ended(task, done.returncode, "node-1", output, error, 0.1)

    def stands_for(self, name: str, patch: pytest.MonkeyPatch) -> Self:
        """Take the place of the scheduler of this name."""

        def parse(on: str, wanted: Wanted) -> Scheduler:
            self.wanted = wanted
            return self

        assert name in schedulers.FORMS
        patch.setattr("tuner.cli.on.parse", parse)
        return self
