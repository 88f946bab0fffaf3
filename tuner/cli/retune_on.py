"""`tuner retune --on`: each answer as a task of a fleet, and one report of all findings."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from tuner.cli import INTERRUPTED
from tuner.cli.on import environment_of, given_words, problem_words, run_tasks, scheduler_on
from tuner.cli.ops import signature_of
from tuner.cli.retune_report import finding_line, give_report
from tuner.cli.text import say
from tuner.db.database import Database
from tuner.db.store import Store
from tuner.errors import NothingFound
from tuner.fleet.task import Ended, Task
from tuner.kernels.spec import Problem
from tuner.records.retune import Retune
from tuner.report.retune.report import stored_report
from tuner.report.text import first_line, short
from tuner.suites.suite import Entry
from tuner.tuning.gpu import MeasureOptions


def retune_on(
    on: str,
    reference: str | None,
    wanted: Sequence[Problem | Entry] | None,
    database: Database,
    options: MeasureOptions,
    forwarded: Sequence[click.Parameter],
    *,
    folder: Path | None,
    as_json: bool,
) -> int:
    """Measure each answer again with a scheduler, and print one report of the retunes of all tasks.

    Args:
        wanted: problems, or entries of a suite with the kernel of each; None: all that have an answer.
        forwarded: options that the command of each task gets if they are given to this one.

    Returns:
        The exit code of the report; at least 1 if a task failed.

    Raises:
        NothingFound: no answer is in service, or no task measured anything.
        TunerError: as `scheduler_on` and `run_tasks`.
    """
    scheduler, store = scheduler_on(on, database, options.gpu, options.replay), Store.open(database)
    words, environment = [*given_words(forwarded), "--json"], environment_of(database)
    op = None if reference is None else signature_of(reference, database).op
    named = None if wanted is None else {each.problem if isinstance(each, Entry) else each for each in wanted}
    problems = _problems(store, named, op, is_recorded=options.replay is not None)
    kernels = {each.problem.op: each.reference for each in wanted or () if isinstance(each, Entry)}
    tasks = [
        Task(
            name,
            ("retune", *problem_words(reference or kernels.get(problem.op, problem.op), problem), *words),
            environment,
        )
        for name, problem in problems.items()
    ]
    retunes, failures = list[Retune](), dict[str, str]()

    def on_end(ended: Ended) -> str:
        name = short(problems[ended.task.name])
        retune = _retune_of(ended, store)
        if retune is None:
            why = ended.error or f"ended with code {ended.code}"
            failures[ended.task.name] = why
            return f"{name}: failed, {first_line(why)}"
        retunes.append(retune)
        return "; ".join(map(finding_line, retune.findings)) or f"{name}: nothing to measure"

    interrupted = run_tasks(scheduler, tasks, on_end)
    if not retunes and not interrupted:
        raise NothingFound(f"no answer was measured: {next(iter(failures.values()))}")
    code = 0
    if retunes:
        report = stored_report(store, _merged(retunes, reference, "interrupted" if interrupted else "done"))
        give_report(report, folder, as_json)
        code = report.summary.exit_code
    for name, why in failures.items():
        say(f"failed: {short(problems[name])}: {why}")
    return INTERRUPTED if interrupted else code or bool(failures)


def _problems(
    store: Store, named: Collection[Problem] | None, op: str | None, *, is_recorded: bool
) -> Mapping[str, Problem]:
    """Return the problems that have an answer in service, by their text."""
    answers = [
        stored
        for stored in store.answers(op=op)
        if (stored.provenance.recorded is not None) == is_recorded and (named is None or stored.answer.problem in named)
    ]
    if not answers:
        raise NothingFound("no answer that can be measured is in service; tuner search finds one")
    cards = sorted({stored.provenance.device.id for stored in answers})
    if len(cards) > 1 and not is_recorded:
        say(f"The store has answers of {', '.join(cards)}; a task fails if no node has its card.")
    return {stored.answer.problem.text: stored.answer.problem for stored in answers}


def _retune_of(ended: Ended, store: Store) -> Retune | None:
    """Return the retune of a task; None if there is none."""
    document: Any = ended.output
    number = document.get("id") if isinstance(document, dict) else None
    return store.retunes.get(number) if isinstance(number, int) else None


def _merged(retunes: Sequence[Retune], reference: str | None, status: str) -> Retune:
    """Return the retunes of the tasks as one, which is not stored. It has the id of the newest.

    Args:
        reference: kernel that was selected; None: all.
    """
    newest = max(retunes, key=lambda retune: retune.id)
    return replace(
        newest,
        device=",".join(sorted({name for retune in retunes for name in retune.device.split(",")})),
        settings={**newest.settings, "kernel": reference, "problems": None},
        planned=[answer for retune in retunes for answer in retune.planned],
        environment={name: value for name, value in newest.environment.items() if name != "host"},
        status=status,
        started_at=min(retune.started_at for retune in retunes),
        ended_at=max((retune.ended_at for retune in retunes if retune.ended_at), default=None),
        findings=tuple(finding for retune in retunes for finding in retune.findings),
    )
