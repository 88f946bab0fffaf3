"""The order in which answers are measured again: demand times expected gain. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from tuner.records import StoredAnswer
from tuner.records.retune import Cause, Retune


@dataclass(frozen=True)
class PrioritySettings:
    """Expected gains of measuring an answer again, as shares of its latency. Only their order counts."""

    any: float = 0.01
    changed: float = 0.05
    """Something changed since it was stored."""
    added: float = 0.1
    """The kernel has choices that were not searched."""
    regressed: float = 0.2
    """The last check found a regression that is not repaired."""
    most_spread: float = 0.05
    """Most that the spread of its ties counts."""


SETTINGS = PrioritySettings()


@dataclass(frozen=True)
class Priority:
    """The value of measuring answers again, by what earlier retunes found."""

    REMEMBERED: ClassVar[int] = 10
    """Number of earlier retunes that count."""

    skipped: Mapping[int, int] = field(default_factory=dict)
    """Number of retunes since an answer was measured, by its id."""
    regressed: frozenset[int] = frozenset()
    """Ids of answers whose last finding is an open regression."""
    retunes: int = 0

    @staticmethod
    def of(retunes: Sequence[Retune]) -> Priority:
        """Return the priority by retunes of a card, newest first."""
        skipped, regressed = dict[int, int](), set[int]()
        for number, retune in enumerate(retunes):
            for finding in retune.findings:
                id = finding.new_answer_id or finding.answer_id
                if finding.cause is Cause.NOT_MEASURED or id in skipped:
                    continue
                skipped[id] = number
                if finding.is_open_regression:
                    regressed.add(id)
        return Priority(skipped, frozenset(regressed), len(retunes))

    def value(
        self,
        stored: StoredAnswer,
        reasons: Sequence[str],
        misses: int,
        is_added: bool,
        settings: PrioritySettings = SETTINGS,
    ) -> float:
        """Return the value of an answer: (1 + misses) times the expected gain, times the retunes that left it out."""
        spread = max((tie.interval[1] - tie.interval[0] for tie in stored.answer.ties), default=0.0)
        gain = settings.any + min(settings.most_spread, spread)
        gain += settings.changed * bool(reasons) + settings.added * is_added
        gain += settings.regressed * (stored.id in self.regressed)
        return (1 + misses) * gain * (1 + self.skipped.get(stored.id, self.retunes))
