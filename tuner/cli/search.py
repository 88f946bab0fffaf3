"""`tuner search OP`: find the best config of a problem, or of several, and store it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import click

from tuner.cli import INTERRUPTED
from tuner.cli.dry_run import dry_run_options, give_plan, refuse_device
from tuner.cli.effort import HOW_HARD, asked_effort
from tuner.cli.interrupt import Interrupt
from tuner.cli.joint import print_joint, print_joint_so_far
from tuner.cli.notes import TerminalProgress
from tuner.cli.on import on_option
from tuner.cli.op_commands import OpCommands
from tuner.cli.ops import db_option, gpus_option, json_option, policy_option, shared_option
from tuner.cli.problem_rows import ended
from tuner.cli.problems import PROBLEMS
from tuner.cli.search_captured import CAPTURED, called, search_captured, selected
from tuner.cli.search_on import replay_option, search_on, search_vendors_option
from tuner.cli.suites import selected_suite, suite_options
from tuner.cli.text import give, print_json, print_partial, say
from tuner.db.database import Database
from tuner.db.store import Store, default_database
from tuner.errors import UsageError
from tuner.kernels.spec import Signature
from tuner.measure.joint_comparison import OBJECTIVES
from tuner.report.text import configs_text, not_run_text
from tuner.search import Result
from tuner.suites.selection import select_problems
from tuner.suites.suite import Suite
from tuner.tuning.captured import is_known
from tuner.tuning.effort import Effort
from tuner.tuning.gpu import AUTO, MeasureOptions
from tuner.tuning.joint import check_joint, tune_jointly
from tuner.tuning.lanes import open_lanes
from tuner.tuning.several import tune_one, tune_several
from tuner.tuning.tuned import nothing_ran
from tuner.tuning.vendors import check_vendors


def _search(
    suite: Suite,
    *,
    joint: str | None,
    dry_run: bool,
    device_id: str | None,
    db: Database | None,
    as_json: bool,
    gpu: str,
    replay: str | None,
    policy: str,
    shared: bool,
    vendors: str | None,
    on: str | None,
    **how_hard: Any,
) -> int:
    effort = asked_effort(**how_hard)
    if suite.note:
        say(suite.note)
    if joint is not None:
        check_joint(suite, joint)
    check_vendors(suite, vendors, replay)
    if dry_run:
        return give_plan(suite, effort, db=db, gpu=gpu, device_id=device_id, as_json=as_json, joint=bool(joint))
    refuse_device(device_id, "a search")
    options = MeasureOptions(gpu, replay, policy, shared, vendors)
    if replay not in (None, AUTO) and len(suite.entries) > 1:
        raise UsageError(f"--replay names the space of one problem, and {suite.name} has {len(suite.entries)}")
    if on is not None:
        if joint is not None:
            raise UsageError("--joint measures all problems together on one card; leave out --joint or --on")
        return search_on(on, suite, db or default_database(), options, as_json)
    store = Store.open(db or default_database())
    if len(suite.entries) == 1:
        return _one(suite, effort, store, options, as_json)
    if joint is not None:
        return _joint(suite, joint, effort, store, options, as_json)
    return _several(suite, effort, store, options, as_json)


def _one(suite: Suite, effort: Effort, store: Store, options: MeasureOptions, as_json: bool) -> int:
    """Show the progress, and the answer with its evidence."""
    with TerminalProgress() as progress, Interrupt() as interrupt:
        tuned = tune_one(suite.entries[0], effort, store, options, progress, interrupt.token)
    if tuned.found is None:
        assert tuned.result is not None
        return _no_answer(tuned.result, as_json)
    assert tuned.found.stored is not None
    if tuned.result is None:
        is_pinned = store.pins.of_problem(tuned.problem, tuned.found.stored.provenance.device.id) is not None
        again = "" if is_pinned else "; --force searches again"
        say(f"Answered from the store, run {tuned.found.stored.run_id}{again}.")
    else:
        if tuned.found.recorded is None:
            say(_compiled_by(tuned.result))
    if as_json:
        print_json(tuned.as_json(store.snapshot))
    else:
        give(tuned.found, store, as_json)
    _say_what_did_not_run(tuned.result, f"tuner show {tuned.found.stored.run_id}")
    return 0


def _say_what_did_not_run(result: Result | None, command: str) -> None:
    """Print one line on the configs of a search that did not run, if there are any."""
    if result is not None and result.failures:
        say(f"Of {configs_text(len(result.measurements))}, {not_run_text(result.failures)}; {command} has an example.")


def _compiled_by(result: Result) -> str:
    """Return the number of configs compiled by each process; all should be by the pool, ahead of the GPU."""
    by = Counter(measurement.compiled_by for measurement in result.measurements if measurement.ok)
    return f"Compiled: {by['pool']:,} by the pool, {by['worker']:,} in the GPU worker."


def _no_answer(result: Result, as_json: bool) -> int:
    """Print the best measurement of an interrupted search, which is kept and not served.

    Raises:
        NothingFound: the search was not interrupted: every config failed.
    """
    if result.stopped != "interrupted":
        raise nothing_ran(result)
    say(f"Interrupted after {configs_text(len(result.measurements))}; the same command continues from there.")
    print_partial(result.best, as_json)
    return INTERRUPTED


def _several(suite: Suite, effort: Effort, store: Store, options: MeasureOptions, as_json: bool) -> int:
    """Print a line as each problem is answered, and a table at the end."""
    started = monotonic()
    with (
        TerminalProgress(bars=False) as progress,
        Interrupt() as interrupt,
        open_lanes(suite, store, options, progress) as (measured, lanes),
    ):
        results = tune_several(measured, lanes, effort, store, progress, interrupt.token)
    left_out = len(suite.entries) - len(measured.entries)
    return ended(measured, results, monotonic() - started, store, as_json, left_out)


def _joint(suite: Suite, objective: str, effort: Effort, store: Store, options: MeasureOptions, as_json: bool) -> int:
    """Show the progress, then the speed of the joint config on each problem."""
    with TerminalProgress() as progress, Interrupt() as interrupt:
        found = tune_jointly(suite, objective, effort, store, options, progress, interrupt.token)
    result = found.result
    if result.verdict is None:
        if result.stopped != "interrupted":
            raise nothing_ran(result)
        say(f"Interrupted after {configs_text(len(result.measurements))}; the same command continues from there.")
        print_joint_so_far(objective, result.best, as_json)
        return INTERRUPTED
    if as_json:
        print_json(found.as_json())
    else:
        print_joint(found)
    _say_what_did_not_run(result, "tuner show")
    return 0


def _search_op(
    reference: str,
    signature: Signature,
    values: Mapping[str, str],
    *,
    shapes: Path | None,
    model: Path | None,
    tp: int | None,
    **options: Any,
) -> int:
    suite = select_problems(reference, signature, values, shapes=shapes, model=model, tp=tp)
    if signature.captured and not is_known(reference):
        return search_captured(partial(called, suite), widen=False, **options)
    return _search(suite, **options)


def _search_suite(
    ctx: click.Context,
    suite: str | None,
    dtype: str | None,
    only: tuple[str, ...],
    list_: bool,
    captured: bool,
    widen: bool,
    **options: Any,
) -> int | None:
    if captured and ctx.invoked_subcommand is None:
        for name, given in {"--suite": suite, "--dtype": dtype, "--list": list_}.items():
            if given:
                raise UsageError(f"--captured takes the calls that were captured, and no {name}; leave one of them out")
        wanted = dict(word.split("=", 1) for word in only)
        return search_captured(partial(selected, wanted), widen=widen, **options)
    chosen = selected_suite(ctx, suite, dtype, only, list_, options["db"])
    return None if chosen is None else _search(chosen, **options)


class _SearchCommands(OpCommands):
    """Commands by op. With --captured, an op may also be that of captured calls."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--captured" in args:
            op, others, _ = self._split(args)
            return super().parse_args(ctx, others if op is None else [*others, "--only", f"op={op}"])
        if "--widen" in args:
            raise UsageError("--widen adds neighbours of the configs of captured calls; give --captured with it")
        return super().parse_args(ctx, args)


_OPTIONS: list[click.Parameter] = [
    *HOW_HARD,
    click.Option(
        ["--joint"],
        type=click.Choice(list(OBJECTIVES)),
        help="Find one config for several problems, by the geometric mean or the worst of its speeds relative to "
        "their defaults. It is printed and not stored as an answer.",
    ),
    *dry_run_options("the problems with the sizes of their spaces, what is stored, and the expected time"),
    gpus_option,
    replay_option,
    policy_option,
    shared_option,
    search_vendors_option,
    on_option,
    db_option,
    json_option,
]

command = _SearchCommands(
    _search_op,
    [*PROBLEMS, *_OPTIONS],
    asked=lambda signature, values: values,
    name="search",
    help="Find the best config of a problem, and store it.\n\n"
    "A list gives several problems: --M 16,64,4096 gives three, and with --dtype bf16,fp16 six.",
    invoke_without_command=True,
    callback=click.pass_context(_search_suite),
    params=[*suite_options("Search"), *CAPTURED, *_OPTIONS],
)
