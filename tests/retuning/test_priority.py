"""The order of answers: demand times expected gain, and the longer not measured the sooner."""

from __future__ import annotations

from dataclasses import replace

from readings import CONFIGS, THEN

from tuner.kernels.spec import Problem
from tuner.records import Answer, StoredAnswer, Tie
from tuner.records.retune import Action, Cause, Finding, Retune
from tuner.retuning.priority import Priority

PROBLEM = Problem("toy", (("N", 64),), "fp32", (), "toy N=64 dtype=fp32")
CONFIG = CONFIGS["answer"]
ANSWER = Answer(PROBLEM, "tuned", CONFIG, 100.0, (99.0, 101.0), 1.3, (1.29, 1.31), 130.0, 110.0)
NEVER = Priority(retunes=3)


def stored(id: int = 1, spread: float = 0.0) -> StoredAnswer:
    ties = (Tie(CONFIGS["runner-up"], 1.0, (1.0, 1.0 + spread)),) if spread else ()
    return StoredAnswer(id, replace(ANSWER, ties=ties), THEN, "2026-11-28T01:00:00Z", 1)


def finding(answer: int, cause: Cause = Cause.UNCHANGED, new: int | None = None) -> Finding:
    action = Action.KEPT if new is None else Action.CONFIRMED
    return Finding(PROBLEM, answer, CONFIG, cause, action, "", new_answer_id=new)


def retune(id: int, *findings: Finding) -> Retune:
    planned = [finding.answer_id for finding in findings]
    return Retune(id, "nvidia-h200", {}, planned, {}, "done", "2026-11-28T01:00:00Z", findings=findings)


def value(priority: Priority, answer: StoredAnswer, *, reasons: tuple[str, ...] = (), misses: int = 0) -> float:
    return priority.value(answer, reasons, misses, is_added=False)


def test_demand_and_what_changed_come_first() -> None:
    plain = value(NEVER, stored())
    assert value(NEVER, stored(), reasons=("Triton 3.6.0, now 3.7.1",)) > plain
    assert value(NEVER, stored(), misses=9) == 10 * plain
    assert NEVER.value(stored(), (), 0, is_added=True) > plain
    assert plain < value(NEVER, stored(spread=0.02)) < value(NEVER, stored(spread=0.05))
    assert value(NEVER, stored(spread=0.05)) == value(NEVER, stored(spread=9.0))


def test_what_was_left_out_for_longest_comes_next() -> None:
    priority = Priority.of([retune(3, finding(1)), retune(2, finding(1), finding(2)), retune(1, finding(3, new=4))])
    measured, before, confirmed, never = (value(priority, stored(id)) for id in (1, 2, 4, 5))
    assert measured < before < confirmed < never
    assert value(priority, stored(3)) == never  # its successor is in service


def test_what_was_not_measured_counts_as_left_out() -> None:
    priority = Priority.of([retune(2, finding(1, Cause.NOT_MEASURED)), retune(1, finding(1))])
    assert priority.skipped == {1: 1}


def test_a_regression_that_is_not_repaired_comes_before() -> None:
    priority = Priority.of([retune(1, finding(1, Cause.SLOWER_CODE), finding(2))])
    assert priority.regressed == {1}
    assert value(priority, stored(1)) > value(priority, stored(2))
