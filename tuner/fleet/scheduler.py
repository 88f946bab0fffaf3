"""Schedulers of a fleet behind one interface: systems that people already operate to place, retry and log tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol, Self

from tuner.db.database import Database
from tuner.db.sqlite import SQLite
from tuner.errors import UsageError
from tuner.fleet.task import Ended, Task
from tuner.tuning.events import StopToken
from tuner.tuning.gpu import AUTO

Watch = Callable[[Mapping[str, str]], None]
"""Receives the tasks under way, about once a second: the host or worker that runs each, by the task's name."""


@dataclass(frozen=True)
class SchedulerSettings:
    """Numbers that schedulers share."""

    poll_s: float = 1.0
    """Longest wait between two looks at the tasks and the stop token, in seconds."""
    connect_s: float = 20.0
    """Seconds in which a cluster has to answer."""
    tries: int = 3
    """Number of times that a task is run again after its process or node was lost."""


SETTINGS = SchedulerSettings()


class Scheduler(Protocol):
    """A scheduler. Retry, placement, logs and the loss of a node are the work of the system behind it.

    It is entered once, connects to the system then, and releases what it holds at the exit.
    """

    name: str
    """Its name, as `--on` has it."""

    def __enter__(self) -> Self:
        """Connect.

        Raises:
            FleetError: the system cannot be reached.
        """
        ...

    def __exit__(self, *_: object) -> None: ...

    def submit_all(self, tasks: Sequence[Task], stop: StopToken, watch: Watch) -> Iterator[Ended]:
        """Submit the tasks, whose names differ, and yield each when it has ended, in any order.

        A task whose command fails has ended. One whose node is lost is run again by the scheduler; after too many
        losses it ends with the code None. Once `stop` is set, tasks under way are cancelled, and the iterator ends.

        Raises:
            FleetError: the system cannot be reached any more.
        """
        ...


@dataclass(frozen=True)
class Wanted:
    """Needs of a task."""

    gpus: int = 1
    """Number of GPUs of a task: 1, or 0 if it replays recorded spaces."""
    chosen: str = AUTO
    """GPUs of this machine that the scheduler `local` uses, as `--gpu` has them; all for `auto`."""


@dataclass(frozen=True)
class _Known:
    """A scheduler that `--on` names."""

    form: str
    """The text of `--on`, with its place."""
    module: str
    extra: str = ""
    """Extra of the package that it needs; empty for none."""
    address: str = ""
    """An example, if the place is required."""


_SCHEDULERS = {
    "local": _Known("local[:N]", "tuner.fleet.local"),
    "slurm": _Known("slurm[:PARTITION]", "tuner.fleet.slurm", "slurm"),
    "ray": _Known("ray[:ADDRESS]", "tuner.fleet.ray", "ray"),
    "dask": _Known("dask:ADDRESS", "tuner.fleet.dask", "dask", "dask:tcp://HOST:8786"),
    "kubernetes": _Known("kubernetes[:NAMESPACE]", "tuner.fleet.kubernetes", "kubernetes"),
}
FORMS = "|".join(known.form for known in _SCHEDULERS.values())
"""Texts that `--on` takes."""


def parse(on: str, wanted: Wanted = Wanted()) -> Scheduler:
    """Return the scheduler that a text such as `slurm:gpu` names. Nothing is connected yet.

    Its module has a function `scheduler(place, wanted)`; the place is the text after the colon, empty for none.

    Raises:
        UsageError: no scheduler has the name, the place is missing or not valid, or a package is not installed.
    """
    name, _, place = on.partition(":")
    known = _SCHEDULERS.get(name)
    if known is None:
        raise UsageError(f"--on takes {', '.join(one.form for one in _SCHEDULERS.values())}, not {on[:60]!r}")
    if known.address and not place:
        raise UsageError(f"--on {name} needs an address; give it as --on {known.address}")
    try:
        scheduler: Scheduler = import_module(known.module).scheduler(place, wanted)
    except ModuleNotFoundError as error:
        if not known.extra or (error.name or "").partition(".")[0] == "tuner":
            raise
        raise UsageError(f"--on {name} needs {error.name}; pip install 'triton-tuner[{known.extra}]'") from error
    return scheduler


def require_shared(on: str, database: Database) -> None:
    """Refuse a store that the nodes of a scheduler cannot reach.

    Raises:
        UsageError: it is a SQLite file, and the scheduler runs tasks on other machines.
    """
    if isinstance(database, SQLite) and on.partition(":")[0] != "local":
        raise UsageError(
            f"--on {on} needs a store that every node reaches, and {database} is a SQLite file; give "
            "postgresql://user@host/name with --db or TUNER_DB"
        )
