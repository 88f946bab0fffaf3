"""Tuning of one problem, and of several over the lanes of a host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from time import monotonic

from tuner.db.store import Store
from tuner.errors import Interrupted, KernelFault, MeasureError, NothingFound
from tuner.records.answer import REFERENCE
from tuner.suites.suite import Entry, Suite
from tuner.tuning.effort import Effort, require_search
from tuner.tuning.events import Events, StopToken
from tuner.tuning.gpu import MeasureOptions
from tuner.tuning.lanes import Lane, spread
from tuner.tuning.pinned import pinned_answer
from tuner.tuning.run import run_search, stored_answer
from tuner.tuning.target import Target, choose_target
from tuner.tuning.tuned import Tuned, nothing_ran

_SEARCHES_A_CARD = 2
"""Searches under way on a card: one measures, and the next compiles while the first is in its comparison."""


def tune_one(
    entry: Entry, effort: Effort, store: Store, options: MeasureOptions, events: Events, stop: StopToken
) -> Tuned:
    """Return the stored answer of a problem if the effort accepts it; else search.

    Raises:
        TunerError: as `tune`, but that a search without an answer is returned.
    """
    require_search()
    target = choose_target(entry, store, options, events)
    try:
        return tune_target(entry, target, effort, store, events, stop)
    finally:
        target.close()


def tune_target(entry: Entry, target: Target, effort: Effort, store: Store, events: Events, stop: StopToken) -> Tuned:
    """Return the stored answer of a target if it is pinned or the effort accepts it; else search.

    Raises:
        TunerError: as `tune`, but that a search without an answer is returned.
    """
    if (pinned := pinned_answer(store, target, entry, events, "nothing is measured")) is not None:
        return Tuned.of(store, pinned)
    effort = effort.exhausting() if target.is_exhausted else effort
    found = stored_answer(store, target, entry)
    if target.basis == REFERENCE and found.stored is not None and found.stored.answer.basis != REFERENCE:
        effort = replace(effort, force=True)  # what only agreed is measured again with the reference
    if effort.accepts(found, target.space):
        return Tuned.of(store, found)
    result = run_search(target, store, entry, effort, events=events, stop=stop)
    if result.verdict is None:
        return Tuned(entry.problem, result=result)
    return Tuned.of(store, stored_answer(store, target, entry), result)


def tune_several(
    suite: Suite, lanes: Sequence[Lane], effort: Effort, store: Store, events: Events, stop: StopToken
) -> list[Tuned]:
    """Tune each problem on the next free lane.

    Returns:
        The outcomes in the suite's order; fewer than its problems if it was stopped.
    """
    require_search()
    results: dict[str, Tuned] = {}
    before = monotonic()

    def on_result(tuned: Tuned) -> None:
        nonlocal before
        tuned = replace(tuned, seconds=monotonic() - before)
        before = monotonic()
        results[tuned.problem.text] = tuned
        events.tuned(tuned, len(results), len(suite.entries))

    workers = [lane for lane in lanes for _ in range(_SEARCHES_A_CARD if lane.device else 1)]
    spread(suite.entries, [partial(_tune_on, lane, effort, store, events, stop) for lane in workers], on_result, stop)
    return [results[entry.problem.text] for entry in suite.entries if entry.problem.text in results]


def _tune_on(lane: Lane, effort: Effort, store: Store, events: Events, stop: StopToken, entry: Entry) -> Tuned | None:
    """Tune a problem on a lane; a failure is the outcome of this problem alone. Return None if it was stopped."""
    try:
        target = lane.target(entry, False)  # no spare worker: it would start while the next problem is measured
        tuned = tune_target(entry, target, effort, store, events, stop)
        if tuned.result is not None and tuned.answer is None and not tuned.interrupted:
            raise nothing_ran(tuned.result)
    except Interrupted:
        return None
    except (NothingFound, MeasureError, KernelFault) as error:
        return Tuned(entry.problem, error=str(error))
    return None if tuned.interrupted else tuned
