"""A task of a fleet: one command on one problem on one GPU, as plain data that any scheduler can carry."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tuner.version import __version__


@dataclass(frozen=True)
class Task:
    """One command line of `tuner` for one problem or job, run where the scheduler puts it. Results go to the store."""

    name: str
    """Short text for people and for the scheduler's own lists, such as the problem's."""
    words: tuple[str, ...]
    """Words of the command after `tuner`, such as `search gemm --M 4096 --json`."""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables that the task needs, such as `TUNER_DB`. They may hold a password, so they are never logged."""
    version: str = __version__
    """Version of the tuner that made the task; a node with another one refuses it."""

    def as_text(self) -> str:
        """Return the task as JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_text(text: str) -> Task:
        """Return the task that `as_text` wrote."""
        data = json.loads(text)
        return Task(data["name"], tuple(data["words"]), data["environment"], data["version"])


@dataclass(frozen=True)
class Ended:
    """The end of a task, as the scheduler reports it."""

    task: Task
    code: int | None
    """Exit code of its command; None if the scheduler gave the task up."""
    where: str = ""
    """Host or node that ran it last."""
    output: Any = None
    """Its standard output, parsed as JSON; None if there is none."""
    error: str = ""
    """The last line of its standard error, or the scheduler's reason."""
    seconds: float = 0.0

    def as_text(self) -> str:
        """Return the end as one line of JSON, without the task, whose environment may hold a password."""
        return json.dumps({name: value for name, value in vars(self).items() if name != "task"})

    @staticmethod
    def from_text(text: str, task: Task) -> Ended:
        """Return the end of this task that `as_text` wrote."""
        return Ended(task, **json.loads(text))
