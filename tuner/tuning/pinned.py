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

    Args:
        outcome: Text of the note on what is left out.
    """
    device, problem = target.provenance.device.id, entry.problem
    pin = store.pins.holding(problem, target.provenance)
    stored = None if pin is None else store.answer(pin.answer_id)
    if pin is None or stored is None:
        return None
    events.note(f"{short(problem)}: answer {pin.answer_id} is pinned{pin.because}; {outcome}. tuner unpin lifts that.")
    return Table(device, [stored]).find(replace(target.query(problem), policy=None))
