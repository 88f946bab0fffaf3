"""`tuner retune [OP]`: measure stored answers again, name what changed, and repair it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from tuner.cli import INTERRUPTED
from tuner.cli.interrupt import Interrupt
from tuner.cli.on import on_option
from tuner.cli.op_commands import OpCommands
from tuner.cli.ops import db_option, gpus_option, json_option, open_to_read, shared_option
from tuner.cli.retune_environments import compared_gpu, give_environments
from tuner.cli.retune_on import retune_on
from tuner.cli.retune_options import Share
from tuner.cli.retune_plan import give_plan
from tuner.cli.retune_progress import RetuneProgress
from tuner.cli.retune_report import give_report, report_option
from tuner.cli.suites import selected_suite, suite_options
from tuner.db.database import Database
from tuner.db.store import Store, default_database
from tuner.errors import TunerError, UsageError
from tuner.kernels.spec import Problem, Signature
from tuner.records import POLICIES
from tuner.records.retune import Retune
from tuner.report.retune.report import stored_report
from tuner.retuning.api import plan_retune, retune
from tuner.retuning.settings import SETTINGS
from tuner.suites.selection import select_problems
from tuner.suites.suite import Entry
from tuner.tuning.effort import EFFORTS, parse_duration
from tuner.tuning.gpu import MeasureOptions


def _retune(
    reference: str | None,
    problems: Sequence[Problem | Entry] | None,
    *,
    dry_run: bool,
    folder: Path | None,
    db: Database | None,
    as_json: bool,
    budget: float | None,
    check: bool,
    resume: bool,
    gpu: str,
    replay: str | None,
    policy: str,
    shared: bool,
    stale: bool,
    demand: bool,
    on: str | None,
    python: str | None,
    **how: Any,
) -> int:
    """Show the progress, and the report; write its files, also of a retune that was interrupted or failed."""
    if on is not None and python is not None:
        raise UsageError("--compare-environments measures on this machine, and --on on others; leave one of them out")
    if on is not None and dry_run:
        raise UsageError("--dry-run plans for the card of this machine; run it without --on where the card is")
    if on is not None:
        if budget is not None:
            raise UsageError(
                "--budget is the time of one machine; with --on select fewer answers: OP, --stale, --demand"
            )
        options = MeasureOptions(gpu, replay, policy, shared)
        database = db or default_database()
        return retune_on(on, reference, problems, database, options, _FORWARDED, folder=folder, as_json=as_json)
    store = open_to_read(db)
    what: dict[str, Any] = {"gpu": gpu, "replay": replay, "policy": policy, "stale": stale, "demand": demand}
    if dry_run:
        if folder is not None:
            raise UsageError("--report writes what was measured, and --dry-run measures nothing; leave one of them out")
        give_plan(plan_retune(reference, problems, store=store, **what), budget, as_json)
        return 0
    if python is not None:
        if folder is not None:
            raise UsageError("--report writes a retune, and --compare-environments stores none; --json prints the rows")
        return _environments(python, reference, problems, store, what, shared=shared, budget=budget, as_json=as_json)
    how |= {"shared": shared, "budget": budget, "check_only": check, "resume": resume}
    failure: TunerError | None = None
    done: Retune | None
    with RetuneProgress() as progress, Interrupt() as interrupt, interrupt.token.watched():
        try:
            done = retune(reference, problems, store=store, on_event=progress, stop=interrupt.token, **what, **how)
        except TunerError as error:
            failure, done = error, _begun(progress, store)
    if done is not None:
        report = stored_report(store, done)
        give_report(report, folder, as_json)
    if failure is not None:
        raise failure
    return INTERRUPTED if report.retune.status == "interrupted" else report.summary.exit_code


def _environments(
    python: str,
    reference: str | None,
    problems: Sequence[Problem | Entry] | None,
    store: Store,
    what: Mapping[str, Any],
    *,
    shared: bool,
    budget: float | None,
    as_json: bool,
) -> int:
    if what["replay"] is not None:
        raise UsageError("environments are compared on a GPU, and --replay uses none; leave one of them out")
    compared_gpu(what["gpu"])  # before the plan, whose error names --replay as a way out
    plan = plan_retune(reference, problems, store=store, **what)
    options = MeasureOptions(what["gpu"], None, what["policy"], shared)
    return give_environments(python, plan, store, options, budget_s=budget, as_json=as_json)


def _begun(progress: RetuneProgress, store: Store) -> Retune | None:
    """Return the retune that failed with its findings; None if it has not started."""
    return None if progress.retune is None else store.retunes.get(progress.retune.id)


def _retune_op(reference: str, signature: Signature, values: Mapping[str, str], **options: Any) -> int:
    problems = None
    if values:
        suite = select_problems(reference, signature, values, shapes=None, model=None, tp=None)
        problems = [entry.problem for entry in suite.entries]
    return _retune(reference, problems, **options)


def _retune_all(
    ctx: click.Context,
    suite: str | None,
    dtype: str | None,
    only: tuple[str, ...],
    list_: bool,
    **options: Any,
) -> int | None:
    if ctx.invoked_subcommand is not None:
        return None
    if suite is None and not list_:
        for name, given in {"--dtype": dtype, "--only": only}.items():
            if given:
                raise UsageError(f"{name} selects problems of an OP or of a --suite; name one of them")
        return _retune(None, None, **options)
    chosen = selected_suite(ctx, suite, dtype, only, list_, options["db"])
    return None if chosen is None else _retune(None, chosen.entries, **options)


class _RetuneCommands(OpCommands):
    """Commands by op. Without an op, all ops are meant."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.subcommand_metavar = "[OP]"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        op, _, unknown = self._split(args)
        return (
            click.Group.parse_args(self, ctx, args) if op is None and unknown is None else super().parse_args(ctx, args)
        )


_OPTIONS: list[click.Parameter] = [
    click.Option(["--stale"], is_flag=True, help="Only answers that are stale, or whose kernel has new choices."),
    click.Option(
        ["--demand"], is_flag=True, help="Only problems that the service could not answer, which it counts as misses."
    ),
    click.Option(["--check"], is_flag=True, help="Measure and name the causes, and change no answer."),
    click.Option(["--dry-run"], is_flag=True, help="Print what would be measured, in order, and the reasons."),
    click.Option(
        ["--budget"],
        type=parse_duration,
        metavar="TIME",
        help="Time after which no further answer is begun, such as 20m; the most valuable come first.  "
        "[default: no limit]",
    ),
    click.Option(
        ["--threshold"],
        type=Share(),
        metavar="PERCENT",
        default=f"{SETTINGS.threshold:.0%}",
        show_default=True,
        help="Gain from which another config replaces an answer, such as 2% or 0.02. The lower end of its 95 % "
        "interval must reach it.",
    ),
    click.Option(
        ["--slower"],
        type=Share(),
        metavar="PERCENT",
        default="0%",
        help="Slowdown from which a regression counts in the exit code, such as 10%. The lower end of its 95 % "
        "interval must exceed it.  [default: any]",
    ),
    click.Option(
        ["--effort"],
        type=click.Choice(list(EFFORTS)),
        default="quick",
        show_default=True,
        help="Effort of a new search, which is made only if another config is faster or the answer's does not work.",
    ),
    click.Option(
        ["--compare-environments", "python"],
        metavar="PYTHON",
        help="Before an upgrade: measure the answers in this environment and in that of another Python interpreter, "
        "such as new/.venv/bin/python, interleaved on one card. Nothing is stored. Exit code 4: an answer is slower "
        "there, or broken.",
    ),
    click.Option(
        ["--resume/--no-resume"],
        default=True,
        show_default=True,
        help="Continue a retune of the same options that was interrupted in the last 24 hours.",
    ),
    report_option,
    gpus_option,
    on_option,
    click.Option(
        ["--replay"],
        metavar="NAME|auto",
        help="Measure on a recorded space instead of a GPU; auto takes those that the answers were found in.",
    ),
    click.Option(
        ["--policy"],
        type=click.Choice(["auto", *POLICIES]),
        default="auto",
        show_default=True,
        help="How latencies are measured; auto is the policy of each answer.",
    ),
    shared_option,
    db_option,
    json_option,
]
_HERE = ("dry_run", "budget", "folder", "gpu", "on", "python", "db", "as_json")
_FORWARDED = [option for option in _OPTIONS if option.name not in _HERE]
"""Options that a task of --on gets too."""

command = _RetuneCommands(
    _retune_op,
    _OPTIONS,
    asked=lambda signature, values: values,
    name="retune",
    help="Measure the stored answers of this card again, each beside its runner-up, the default and torch, name the "
    "cause of each change, and replace answers that are broken or beaten. Without OP, all answers are measured.\n\n"
    "Exit code 0: no regressions. 1: something could not be measured. 4: regressions were found, repaired or not.",
    invoke_without_command=True,
    callback=click.pass_context(_retune_all),
    params=[*suite_options("Measure the answers of"), *_OPTIONS],
)
