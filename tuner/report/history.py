"""Generations of an answer: the changes from one to the next, and the retunes that made them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tuner.db.pins import Pin
from tuner.db.store import Store
from tuner.kernels.spec import Problem
from tuner.records import StoredAnswer
from tuner.records.document import answer_document
from tuner.records.retune import Finding


@dataclass(frozen=True)
class Generation:
    """One generation of an answer."""

    stored: StoredAnswer
    changed: tuple[str, ...] = ()
    """Sentences, one for each field of its key or environment that differs from the generation before."""
    retune: int | None = None
    """Id of the retune that stored it."""
    finding: Finding | None = None
    """Finding of that retune."""

    def as_json(self) -> dict[str, Any]:
        """Return the answer's document with what is known of its place in the history."""
        stored, finding = self.stored, self.finding
        made_by = None if finding is None else {"id": self.retune, "cause": finding.cause, "action": finding.action}
        return {
            "id": stored.id,
            "problem": stored.answer.problem.values,
            **answer_document(stored),
            "restored": stored.restored,
            "tuned_at": stored.created_at,
            "forgotten_at": stored.forgotten_at,
            "changed": list(self.changed),
            "retune": None if finding is None else {**made_by, "text": finding.text},  # type: ignore[dict-item]
        }


@dataclass(frozen=True)
class History:
    """All generations of the answer to a problem on a device, oldest first."""

    problem: Problem
    device: str
    """Device id."""
    generations: Sequence[Generation]
    pin: Pin | None = None

    def as_json(self, serves: int | None, snapshot: str) -> dict[str, Any]:
        """Return the document of `tuner history --json` and of the service. `serves`: id of the answer that serves."""
        pin = self.pin
        pinned = None if pin is None else {"answer": pin.answer_id, "note": pin.note, "pinned_at": pin.created_at}
        return {
            "op": self.problem.op,
            "problem": self.problem.values,
            "device": self.device,
            "serves": serves,
            "pinned": pinned,
            "generations": [generation.as_json() for generation in self.generations],
            "snapshot": snapshot,
        }


def history_of(store: Store, problem: Problem, device: str) -> History:
    """Return the history of a problem on a device, which may be empty."""
    findings = {
        finding.new_answer_id: (retune, finding) for retune, finding in store.retunes.of_problem(problem.text, device)
    }
    stored = store.history(problem, device)
    changes = [(), *(_changes(before, after) for before, after in pairwise(stored))]
    generations = [
        Generation(each, changed, *findings.get(each.id, (None, None)))
        for each, changed in zip(stored, changes, strict=False)
    ]
    return History(problem, device, generations, store.pins.of_problem(problem, device))


def _changes(before: StoredAnswer, after: StoredAnswer) -> tuple[str, ...]:
    """Return a sentence for each field of the provenance in which an answer differs from the one before."""
    was, is_ = ({**each.provenance.as_json(), "recorded": each.provenance.recorded} for each in (before, after))
    compared = [name for name in was if name != "tuner" and was[name] != is_[name]]
    return tuple(f"{name} {is_[name] or 'none'}, before {was[name] or 'none'}" for name in compared)
