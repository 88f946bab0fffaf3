"""`tuner search OP`: finds the best config of a problem, or of several one after the other, and keeps it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import click

from tuner.cli import INTERRUPTED
from tuner.cli.dry_run import dry_run as plan
from tuner.cli.effort import HOW_HARD, Effort, asked_effort
from tuner.cli.ops import OpCommands, db_option, gpus_option, json_option, open_if_there, policy_option, shared_option
from tuner.cli.problem_rows import Searched, line, print_searched
from tuner.cli.problems import PROBLEMS, asked_problems
from tuner.cli.suites import asked_suite, suite_options
from tuner.cli.text import configs_text, failures_text, give, print_json, print_partial, say
from tuner.db.database import Database
from tuner.db.store import Store, default_database
from tuner.errors import MeasureError, NothingFound, UsageError
from tuner.kernels.spec import Signature
from tuner.measure.joint import OBJECTIVES
from tuner.report.vendor import torch_beside
from tuner.search.loop import Result
from tuner.suites.suite import Entry, Suite
from tuner.tuning.joint import joint_search, refuse_what_is_not_joint
from tuner.tuning.lanes import Stop, spread
from tuner.tuning.run import nothing_ran, stored_answer
from tuner.tuning.session import Lane, chosen_gpus, on_cards, on_recorded
from tuner.tuning.target import Target, choose_target

_AT_ONCE = 2
"""Searches that a card has under way: one measures, and the next compiles as soon as that has only its duel left."""


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
    **how_hard: Any,
) -> int:
    effort = asked_effort(**how_hard)
    if joint is not None:
        refuse_what_is_not_joint(suite)
    if dry_run:
        return plan(suite, effort, open_if_there(db), gpu=gpu, device_id=device_id, as_json=as_json, joint=bool(joint))
    if device_id is not None:
        raise UsageError("--device names the card of a --dry-run; a search measures on --gpu")
    store = Store.open(db or default_database())
    if len(suite.entries) == 1:
        (entry,) = suite.entries
        source = choose_target(
            entry.reference, entry.problem, store, gpu=gpu, replay=replay, policy=policy, shared=shared
        )
        return _one(entry, effort, source, store, as_json)
    if replay is not None:
        raise UsageError(f"--replay names the space of one problem, and {suite.name} has {len(suite.entries)}")
    if joint is not None:
        return joint_search(suite, joint, effort, store, as_json, gpu=gpu, policy=policy, shared=shared)
    return _several(suite, effort, store, as_json, gpu=gpu, policy=policy, shared=shared)


def _one(entry: Entry, effort: Effort, source: Target, store: Store, as_json: bool) -> int:
    """Shows how it goes, and the answer with its evidence."""
    found = stored_answer(store, source, entry.problem)
    if effort.is_content_with(found):
        assert found.stored is not None
        say(f"Answered from the store, run {found.stored.run_id}; --force searches again.")
    else:
        result = effort.search(entry, source, store)
        if result.verdict is None:
            return _no_answer(result, as_json)
        if result.failures:
            say(f"Failed: {failures_text(result.failures)}.")
        if source.provenance.recorded is None:
            say(_compiled_by(result))
        found = stored_answer(store, source, entry.problem)
    give(found, store, as_json)
    return 0


def _compiled_by(result: Result) -> str:
    """Who compiled what ran: all of it should be the pool's, ahead of the GPU."""
    by = Counter(measurement.compiled_by for measurement in result.measurements if measurement.ok)
    return f"Compiled: {by['pool']:,} by the pool, {by['worker']:,} in the GPU worker."


def _no_answer(result: Result, as_json: bool) -> int:
    """Interrupted: the best so far, which is kept and not served. Else every config failed."""
    if result.stopped != "interrupted":
        raise nothing_ran(result)
    say(f"Interrupted after {configs_text(len(result.measurements))}; the same command goes on from there.")
    print_partial(result.best, as_json)
    return INTERRUPTED


def _several(suite: Suite, effort: Effort, store: Store, as_json: bool, *, gpu: str, policy: str, shared: bool) -> int:
    """A line as each is answered, and all in a table in the end."""
    started = monotonic()
    if gpus := chosen_gpus(gpu):
        with on_cards(gpus, suite.name, store, policy, shared) as cards:
            rows = _searched(suite, effort, store, cards * _AT_ONCE)
    else:
        suite, lane = on_recorded(suite, None, policy)
        rows = _searched(suite, effort, store, [lane])
    interrupted = len(rows) < len(suite.entries)
    if interrupted:
        say(f"Interrupted after {len(rows)} of {len(suite.entries)}; the same command goes on from there.")
    seconds = monotonic() - started
    if as_json:
        documents = [row.as_json(store.snapshot) for row in rows]
        print_json({"problems": suite.name, "seconds": round(seconds, 1), "rows": documents})
    elif rows:
        print_searched(suite.name, rows, seconds)
    return INTERRUPTED if interrupted else 0 if all(row.answered for row in rows) else 1


def _searched(suite: Suite, effort: Effort, store: Store, lanes: Sequence[Lane]) -> list[Searched]:
    """The rows in the suite's order; fewer than there are problems where it was interrupted."""
    rows: dict[str, Searched] = {}
    total, before = len(suite.entries), monotonic()

    def on_row(row: Searched) -> None:
        nonlocal before
        row = row.after(monotonic() - before)
        before = monotonic()
        rows[row.problem.text] = row
        say(f"{len(rows):>{len(str(total))}}/{total}  {line(row)}")

    spread(suite.entries, [partial(_row, effort, store, lane) for lane in lanes], on_row)
    return [rows[entry.problem.text] for entry in suite.entries if entry.problem.text in rows]


def _row(effort: Effort, store: Store, lane: Lane, entry: Entry, stop: Stop) -> Searched | None:
    """What came of one problem: of the store, or of a search; None where it was stopped."""
    try:
        source = lane.source(entry, False)  # no spare: each would start while the next problem is measured
        found = stored_answer(store, source, entry.problem)
        if effort.is_content_with(found):
            return Searched(entry.problem, found, torch=torch_beside(store, found.stored))
        result = effort.search(entry, source, store, stop)
    except (NothingFound, MeasureError) as error:
        return Searched(entry.problem, error=str(error))
    if result.verdict is None:
        return None if result.stopped == "interrupted" else Searched(entry.problem, error=str(nothing_ran(result)))
    found = stored_answer(store, source, entry.problem)
    return Searched(entry.problem, found, result, torch=torch_beside(store, found.stored))


def _search_op(
    reference: str,
    signature: Signature,
    told: Mapping[str, str],
    *,
    shapes: Path | None,
    model: Path | None,
    tp: int | None,
    **options: Any,
) -> int:
    return _search(asked_problems(reference, signature, told, shapes=shapes, model=model, tp=tp), **options)


def _search_suite(
    ctx: click.Context, suite: str | None, dtype: str | None, only: tuple[str, ...], list_: bool, **options: Any
) -> int | None:
    chosen = asked_suite(ctx, suite, dtype, only, list_, options["db"])
    return None if chosen is None else _search(chosen, **options)


_OPTIONS: list[click.Parameter] = [
    *HOW_HARD,
    click.Option(
        ["--joint"],
        type=click.Choice(list(OBJECTIVES)),
        help="Find one config for several problems: by the geometric mean of its speeds over their defaults, "
        "or by the worst of them. It is printed, and no answer is stored.",
    ),
    click.Option(
        ["--dry-run"], is_flag=True, help="Say how large the space is, what is stored, how long it would take."
    ),
    click.Option(["--device", "device_id"], metavar="ID", help="The card that --dry-run means where it is not here."),
    gpus_option,
    click.Option(["--replay"], metavar="NAME", help="Search a recorded space instead of a GPU."),
    policy_option,
    shared_option,
    db_option,
    json_option,
]

command = OpCommands(
    _search_op,
    [*PROBLEMS, *_OPTIONS],
    asked=lambda signature, told: told,
    name="search",
    help="Find the best config of a problem, and keep it.\n\n"
    "Lists mean several problems: --M 16,64,4096 three, with --dtype bf16,fp16 six.",
    invoke_without_command=True,
    callback=click.pass_context(_search_suite),
    params=[*suite_options("Search"), *_OPTIONS],
)
