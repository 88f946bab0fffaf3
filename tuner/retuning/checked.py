"""An answer that was checked, on its way to a finding."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tuner.kernels.spec import Config
from tuner.records import Answer, Comparison, Evidence
from tuner.records.retune import Action, Cause, Finding
from tuner.retuning.check import Check, Subject
from tuner.retuning.selection import Chosen
from tuner.search.verdict import decide
from tuner.tuning.run import answer_of
from tuner.tuning.target import Target


@dataclass(frozen=True)
class Checked:
    """An answer that was checked, on its way to a finding."""

    chosen: Chosen
    subject: Subject
    target: Target
    check: Check

    @property
    def is_broken(self) -> bool:
        """True if its config does not work."""
        return self.check.cause is Cause.BROKEN

    @property
    def is_outdated(self) -> bool:
        """True if a lookup with today's key, or a search of today's choices, would not take the answer as it is."""
        return self.chosen.is_stale or bool(self.chosen.added)

    def finding(self, action: Action, **others: Any) -> Finding:
        """Return the finding of an action."""
        chosen, check = self.chosen, self.check
        given = {
            "problem": chosen.problem,
            "answer_id": chosen.stored.id,
            "config": chosen.stored.answer.config,
            "cause": check.cause,
            "action": action,
            "text": check.judgement.text,
            "then": check.then,
            "now": check.now,
            "reasons": chosen.reasons,
            "pinned": chosen.is_pinned,
            "error": check.error,
        }
        return Finding(**{**given, **others})


def answer_about(checked: Checked, comparison: Comparison, configs: Iterable[Config], evidence: Evidence) -> Answer:
    """Return the answer that rounds give about the config that was checked, whether it is the fastest or not.

    Args:
        configs: those of the rounds, and perhaps others.
    """
    target, config = checked.target, checked.subject.config
    timed = [each for each in dict.fromkeys(configs) if each.text in comparison.timed]
    verdict = decide(comparison, timed, target.default, {}, winner=config)
    return answer_of(checked.chosen.problem, target, verdict, comparison, evidence)
