"""`--on`: the problems of a command as tasks of a scheduler, such as SLURM or Ray. Results are in the shared store."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import click
from click.core import ParameterSource

from tuner.cli import INTERRUPTED
from tuner.cli.interrupt import Interrupt
from tuner.cli.on_progress import FleetProgress
from tuner.cli.retune_options import Share
from tuner.db.database import Database
from tuner.db.postgresql import PostgreSQL
from tuner.errors import UsageError
from tuner.fleet.scheduler import FORMS, Scheduler, Wanted, parse, require_shared
from tuner.fleet.task import Ended, Task
from tuner.kernels.spec import Problem
from tuner.tuning.gpu import AUTO

on_option = click.Option(
    ["--on"],
    metavar="SCHEDULER",
    help="Run each problem as a task on one GPU, on this machine or a cluster: "
    + FORMS.replace("|", ", ")
    + ". All tasks use one database.",
)
_THE_ONE = "0"
"""Number of the only GPU that a scheduler shows to a task. Without a GPU there, the task fails."""


def scheduler_on(on: str, database: Database, gpu: str, replay: str | None) -> Scheduler:
    """Return the scheduler that `--on` names, for the tasks of a command with these options.

    Raises:
        UsageError: there is no such scheduler, the nodes cannot reach the database, or `--gpu` names GPUs of this
            machine and the tasks run on others.
    """
    scheduler = parse(on, Wanted(0 if replay is not None else 1, gpu))
    require_shared(on, database)
    if gpu != AUTO and scheduler.name != "local":
        raise UsageError(f"--gpu names GPUs of this machine, and --on {on} chooses one on a node; leave --gpu out")
    return scheduler


def run_tasks(scheduler: Scheduler, tasks: Sequence[Task], on_end: Callable[[Ended], str]) -> bool:
    """Run tasks with a scheduler, with their progress. Return whether Ctrl-C or SIGTERM stopped some.

    Args:
        on_end: called when a task has ended; returns a line on it for the terminal.

    Raises:
        FleetError: the scheduler cannot be reached.
    """
    with scheduler, FleetProgress(scheduler.name, len(tasks)) as progress, Interrupt() as interrupt:
        with interrupt.token.watched():
            for ended in scheduler.submit_all(tasks, interrupt.token, progress.watch):
                if not (ended.code == INTERRUPTED and interrupt.token()):
                    progress.ended(ended, on_end(ended))
        return interrupt.token()


def environment_of(database: Database) -> dict[str, str]:
    """Return the variable by which a task finds the store. It may hold a password, so it is not among the words."""
    if isinstance(database, PostgreSQL):
        return {"TUNER_DB": database.url.render_as_string(hide_password=False)}
    return {"TUNER_DB": os.path.abspath(str(database))}


def problem_words(reference: str, problem: Problem) -> list[str]:
    """Return the words that name a problem: its op or the full path of its file, and an option for each value."""
    return [kernel_word(reference), *(f"--{name}={value}" for name, value in problem.stated.items())]


def kernel_word(reference: str) -> str:
    """Return the word that names a kernel on any node: its op, or the full path of its file."""
    return str(Path(reference).absolute()) if Path(reference).suffix == ".py" else reference


def given_words(options: Sequence[click.Parameter]) -> list[str]:
    """Return those of the options that were given to this command, as words for the command of a task."""
    ctx = click.get_current_context()
    words = ["--gpu", _THE_ONE] if ctx.params["replay"] is None else []
    for option in options:
        assert option.name is not None
        if ctx.get_parameter_source(option.name) in (None, ParameterSource.DEFAULT):  # None: the command has no such
            continue
        value = ctx.params[option.name]
        if isinstance(option, click.Option) and option.is_flag:
            words += option.opts[:1] if value else option.secondary_opts[:1]
        else:
            text = f"{value:%}" if isinstance(option.type, Share) else str(value)
            words.append(f"{option.opts[0]}={text}")
    return words
