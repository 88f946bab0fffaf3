"""A retune with what the store knows of the problems that moved: the content of all files of its report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tuner.db.store import Store
from tuner.kernels.spec import Problem
from tuner.records import StoredAnswer
from tuner.records.retune import Finding, Retune
from tuner.records.retune_codec import retune_as_json
from tuner.report.retune.points import Point, points
from tuner.report.retune.summary import RetuneSummary, summarise
from tuner.report.retune.text import moved


@dataclass(frozen=True)
class RetuneReport:
    """A retune, and the stored history of the problems that moved."""

    retune: Retune
    generations: Mapping[int, Sequence[StoredAnswer]] = field(default_factory=dict)
    """All answers of a finding's problem on its card, by the id of the answer that was measured again."""
    earlier: Mapping[int, Sequence[Finding]] = field(default_factory=dict)
    """Findings of the same problem in earlier retunes, by the same id."""
    left: Mapping[int, Problem] = field(default_factory=dict)
    """Problems of the planned answers that have no finding, by id, as far as they are known."""

    @cached_property
    def summary(self) -> RetuneSummary:
        """The summary of the findings."""
        return summarise(self.retune)

    @cached_property
    def moved(self) -> Sequence[Finding]:
        """Findings to show one by one, the most urgent first."""
        return moved(self.retune)

    def points(self, finding: Finding) -> list[Point]:
        """Return the history of a finding's problem; empty if it was never timed."""
        return points(finding, self.generations.get(finding.answer_id, ()), self.earlier.get(finding.answer_id, ()))

    def as_json(self) -> dict[str, Any]:
        """Return the retune with all findings, its summary, and the problems that are left.

        The ids of `summary` are those of the answers that were measured again.
        """
        left = [
            {"answer_id": answer, "op": problem.op, "problem": problem.values} for answer, problem in self.left.items()
        ]
        return {**retune_as_json(self.retune), "summary": self.summary.as_json(), "left_problems": left}


def stored_report(store: Store, retune: Retune) -> RetuneReport:
    """Return the report of a retune with all answers and earlier findings of each problem that moved."""
    generations, earlier = dict[int, list[StoredAnswer]](), dict[int, list[Finding]]()
    for finding in moved(retune):
        if (stored := store.answer(finding.answer_id)) is None:
            continue
        device = stored.provenance.device.id  # the retune may be several on several cards
        generations[finding.answer_id] = store.history(finding.problem, device)
        found = store.retunes.of_problem(finding.problem.text, device)
        earlier[finding.answer_id] = [other for number, other in found if number < retune.id and other != finding]
    left = {answer: stored.answer.problem for answer in retune.left if (stored := store.answer(answer)) is not None}
    return RetuneReport(retune, generations, earlier, left)
