"""A task of a fleet: one command on one problem on one GPU, as plain data that any engine can carry."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Task:
    """One command line of `tuner`, for one problem or job, run where the engine puts it. Results go to the store."""

    name: str
    """Short text for people and for the engine's own lists, such as the problem's."""
    words: tuple[str, ...]
    """Words of the command after `tuner`, such as `search gemm --M 4096 --json`."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that the task needs, such as `TUNER_DB`; never logged."""

    def as_text(self) -> str:
        """Return the task as JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_text(text: str) -> Task:
        """Return the task that `as_text` wrote."""
        data = json.loads(text)
        return Task(data["name"], tuple(data["words"]), data["environment"])


@dataclass(frozen=True)
class Ended:
    """The end of a task, as the engine reports it."""

    task: Task
    code: int | None
    """Exit code of its command; None if the engine gave the task up."""
    where: str = ""
    """Host or node that ran it last."""
    output: Any = None
    """Its standard output, parsed as JSON; None if there is none."""
    error: str = ""
    """The last line of its standard error, or the engine's reason."""
    seconds: float = 0.0
