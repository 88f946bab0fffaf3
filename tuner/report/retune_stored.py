"""The report of a retune with the history that a store has of its problems."""

from __future__ import annotations

from tuner.db.store import Store
from tuner.records import StoredAnswer
from tuner.records.retune import Finding, Retune
from tuner.report.retune_report import RetuneReport
from tuner.report.retune_text import moved


def stored_report(store: Store, retune: Retune) -> RetuneReport:
    """Return the report of a retune with all answers and earlier findings of each problem that moved."""
    shown = moved(retune)
    return RetuneReport(
        retune,
        generations={each.answer_id: _generations(store, each) for each in shown},
        earlier={each.answer_id: _earlier(store, retune, each) for each in shown},
        left={answer: stored.answer.problem for answer in retune.left if (stored := store.answer(answer)) is not None},
    )


def _generations(store: Store, finding: Finding) -> list[StoredAnswer]:
    stored = store.answer(finding.answer_id)
    return [] if stored is None else store.history(finding.problem, stored.provenance.device.id)


def _earlier(store: Store, retune: Retune, finding: Finding) -> list[Finding]:
    """Return the findings of the same problem in earlier retunes. The retune may be several that are shown as one."""
    found = store.retunes.of_problem(finding.problem.text, retune.device)
    return [other for number, other in found if number < retune.id and other != finding]
