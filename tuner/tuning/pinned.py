"""Pinned answers: a search stores nothing in their place until they are unpinned."""

from __future__ import annotations

from dataclasses import replace

from tuner.db.store import Store
from tuner.lookup.table import LookupResult, Table
from tuner.report.text import short
from tuner.suites.suite import Entry
from tuner.tuning.events import Events
from tuner.tuning.target import Target


def pinned_answer(store: Store, target: Target, entry: Entry, events: Events, outcome: str) -> LookupResult | None:
    """Return the pinned answer of a problem on a target's device after a note that it is, or None if none is pinned.

    An answer that was measured on a card does not hold back a search of a recorded space, nor the other way round.

    Args:
        outcome: Text of the note on what is left out.
    """
    device, problem = target.provenance.device.id, entry.problem
    pin = store.pins.of_problem(problem, device)
    if pin is None:
        return None
    is_recorded = target.provenance.recorded is not None
    pinned = [
        stored
        for stored in store.answers(op=problem.op, device=device)
        if stored.id == pin.answer_id and (stored.provenance.recorded is not None) == is_recorded
    ]
    if not pinned:
        return None
    events.note(f"{short(problem)}: answer {pin.answer_id} is pinned{pin.because}; {outcome}. tuner unpin lifts that.")
    return Table(device, pinned).find(replace(target.query(problem), policy=None))
