"""`tuner search --captured`: captured calls, tuned as several problems."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from time import monotonic
from typing import Any

import click

from tuner.cli.effort import asked_effort
from tuner.cli.interrupt import Interrupt
from tuner.cli.notes import TerminalProgress
from tuner.cli.problem_rows import ended
from tuner.cli.search_on import FORWARDED, search_on
from tuner.db.captured import StoredCall
from tuner.db.database import Database
from tuner.db.store import Store, default_database
from tuner.errors import NothingFound, UsageError
from tuner.measure import device
from tuner.suites.suite import Entry, Suite
from tuner.tuning.captured import CallTuning, no_gpu, not_captured, suite_of
from tuner.tuning.effort import Effort
from tuner.tuning.gpu import MeasureOptions
from tuner.tuning.lanes import chosen_gpus, on_cards
from tuner.tuning.several import tune_several

CAPTURED: list[click.Parameter] = [
    click.Option(
        ["--captured"],
        is_flag=True,
        help="Search the captured calls of autotuned kernels on this card, or those of OP; tuner captured lists them.",
    ),
    click.Option(
        ["--widen"],
        is_flag=True,
        help="With --captured: search the neighbours and all combinations of the configs that a kernel lists.",
    ),
]
"""Options of a search of captured calls."""


def selected(wanted: Mapping[str, str], calls: Sequence[StoredCall]) -> Suite:
    """Return the captured calls with all these values.

    Raises:
        UsageError: none has them.
    """
    return suite_of(calls, "captured calls").only(wanted)


def called(suite: Suite, calls: Sequence[StoredCall]) -> Suite:
    """Return a suite of problems of one op, each of which was captured.

    Raises:
        NothingFound: one was not.
    """
    own = [stored for stored in calls if stored.call.op == suite.entries[0].problem.op]
    known = {stored.problem for stored in own}
    for entry in suite.entries:
        if entry.problem.text not in known:
            raise not_captured(entry.problem, own or calls)
    return suite


def search_captured(
    chosen: Callable[[Sequence[StoredCall]], Suite],
    *,
    widen: bool,
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
    """Search captured calls of this card, and print a row for each.

    Args:
        chosen: returns the problems to search, of the calls of this card.
        widen: search neighbours and combinations of the listed configs too.
        how_hard: options of the effort.

    Raises:
        UsageError: another option does not apply.
        NoDevice: there is no GPU here, and no `--on`.
        NothingFound: no call is captured on this card; with `--on`, on any.
    """
    effort = asked_effort(**how_hard)
    others = {"--joint": joint, "--dry-run": dry_run, "--device": device_id, "--replay": replay, "--vendors": vendors}
    if given := [name for name, value in others.items() if value]:
        raise UsageError(
            f"--captured searches each call on a GPU here, and takes no {given[0]}; leave it out, or list the calls "
            "with tuner captured"
        )
    options = MeasureOptions(gpu, None, policy, shared)
    if on is not None:
        return _captured_on(on, chosen, db or default_database(), options, as_json)
    gpus = chosen_gpus(gpu)
    if not gpus:
        raise no_gpu()
    store, card = Store.open(db or default_database()), device.describe(gpus[0]).id
    calls = store.captured.all(device=card)
    if not calls:
        raise NothingFound(f"no call is captured on {card}; run the program once with tuner run --mode capture")
    tuning = CallTuning(store, options, widen=widen)
    return _captured(chosen(calls), calls, effort, tuning, as_json)


def _captured(suite: Suite, calls: Sequence[StoredCall], effort: Effort, tuning: CallTuning, as_json: bool) -> int:
    """Tune captured calls as several problems."""
    by_problem = {stored.problem: stored for stored in calls}
    store, options = tuning.store, tuning.options
    started = monotonic()
    with (
        TerminalProgress(bars=False) as progress,
        Interrupt() as interrupt,
        on_cards(chosen_gpus(options.gpu), suite.name, store, options, progress) as lanes,
    ):
        tuning = replace(tuning, events=progress, stop=interrupt.token)
        taking = [tuning.lane(lane, by_problem) for lane in lanes]
        results = tune_several(suite, taking, effort, store, progress, interrupt.token)
    return ended(suite, results, monotonic() - started, store, as_json)


def _captured_on(
    on: str,
    chosen: Callable[[Sequence[StoredCall]], Suite],
    database: Database,
    options: MeasureOptions,
    as_json: bool,
) -> int:
    """Search the captured calls of all cards with a scheduler; each node searches those of its card."""
    with closing(Store.open(database)) as store:
        calls = store.captured.all()
    if not calls:
        raise NothingFound("no call is captured; run the program once with tuner run --mode capture")

    def words_of(entry: Entry) -> list[str]:
        values = {"op": entry.problem.op, **entry.problem.values}
        return ["--captured", *(f"--only={name}={value}" for name, value in values.items())]

    forwarded = [*FORWARDED, *(option for option in CAPTURED if option.name == "widen")]
    return search_on(on, chosen(calls), database, options, as_json, forwarded, words_of, as_list=True)
