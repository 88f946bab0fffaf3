"""Retirement of answers whose config no longer works."""

from __future__ import annotations

from collections.abc import Iterable

from tuner.db.store import Store
from tuner.records import StoredAnswer
from tuner.records.retune import Action, Finding


def retire(store: Store, findings: Iterable[Finding]) -> None:
    """Forget the answers of those findings that retired one, with the older answers of the same code."""
    for finding in findings:
        if finding.action is not Action.RETIRED:
            continue
        answers = [each for each in store.answers(op=finding.problem.op, forgotten=True) if _is_about(each, finding)]
        code = {_code(each) for each in answers if each.id == finding.answer_id}
        store.forget(each.id for each in answers if _code(each) in code)


def _is_about(stored: StoredAnswer, finding: Finding) -> bool:
    return stored.answer.problem == finding.problem and stored.id <= finding.answer_id


def _code(stored: StoredAnswer) -> tuple[str | None, ...]:
    """Return what decides the code of an answer's config, and where it was measured."""
    made = stored.provenance
    return made.device.id, made.recorded, made.source, made.environment.triton, made.environment.ptxas
