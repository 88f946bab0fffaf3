"""The report of a retune: its findings with what the store knows of their problems, as files of several formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tuner.kernels.spec import Problem
from tuner.records import StoredAnswer
from tuner.records.retune import Finding, Retune
from tuner.report.retune_history import Point, points
from tuner.report.retune_summary import RetuneSummary, summarise
from tuner.report.retune_text import moved


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
