"""The check of one answer by scripted measurers: what is measured, for how long, and what failures come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from helpers import H200
from scripted import BEST, DEFAULT, SPACE, TOY, ScriptedMeasurer, bowl, only

from tuner.kernels.spec import Config
from tuner.measure.measurer import Measurer
from tuner.records import (
    COLD,
    VENDOR,
    CardState,
    Comparison,
    Environment,
    Measurement,
    Outcome,
    Provenance,
    StoredAnswer,
)
from tuner.records.answer import Answer, Tie
from tuner.records.retune import Cause
from tuner.retuning.check import Check, Subject, check, rechecked
from tuner.retuning.settings import SETTINGS, RetuneSettings
from tuner.search import Budget, search

TIE = TOY.config({"A": 16, "B": 3, "num_warps": 4, "num_stages": 1})
HERE = Provenance(H200, Environment("3.6.0", "12.8", "2.11.0", "580.1"), "9f2c", COLD.text)


def with_a_tie(config: Config) -> float:
    return 100.2 if config == TIE else bowl(config)


def stored(config: Config = BEST, tie: Config = TIE) -> StoredAnswer:
    """Return an answer as it stands in a store."""
    answer = Answer(
        problem=TOY.problem({"N": 64}),
        kind="tuned",
        config=config,
        latency_us=100.0,
        interval_us=(99.9, 100.1),
        speedup=1.75,
        speedup_interval=(1.74, 1.76),
        default_latency_us=175.0,
        vendor_latency_us=120.0,
        ties=(Tie(tie, 1.001, (0.999, 1.003)),),
    )
    return StoredAnswer(1, answer, HERE, "2026-11-28T01:00:00Z", 1, signature=TOY)


def subject(
    config: Config = BEST,
    rounds: Comparison | None = None,
    provenance: Provenance = HERE,
    runner_up: Config | None = TIE,
) -> Subject:
    return Subject(stored(config), provenance, DEFAULT, runner_up, rounds or first_rounds())


def first_rounds(seed: int = 100) -> Comparison:
    """Return the rounds of the answer's run."""
    found = ScriptedMeasurer(with_a_tie, noise=0.005, seed=seed).compare([BEST, TIE, DEFAULT], 30, 1.0, 0)
    assert isinstance(found, Comparison)
    return found


def checked(given: Subject, measurer: Measurer, settings: RetuneSettings = SETTINGS) -> Check:
    found = check(given, measurer, settings=settings)
    assert found is not None
    return found


@pytest.mark.parametrize("seed", range(5))
def test_what_a_search_answers_is_unchanged_the_next_day(seed: int) -> None:
    result = search(SPACE, DEFAULT, ScriptedMeasurer(noise=0.01, seed=seed), budget=Budget(trials=60))
    assert result.verdict is not None
    assert result.comparison is not None
    winner = result.verdict.config
    runner_up = next((tie.config for tie in result.verdict.ties), None)
    given = subject(winner, result.comparison, runner_up=runner_up)
    assert checked(given, ScriptedMeasurer(noise=0.01, seed=100 + seed)).cause is Cause.UNCHANGED


def test_only_the_answer_its_runner_up_and_the_default_are_measured() -> None:
    measurer = ScriptedMeasurer(with_a_tie)
    found = checked(subject(), measurer)
    assert measurer.submitted == [BEST, DEFAULT, TIE]
    assert found.now is not None
    assert found.now.contenders.keys() == {VENDOR, "default", "runner-up"}
    assert (found.now.rounds, found.now.latency_us) == (SETTINGS.min_rounds, 100.0)
    assert (found.evidence.tolerance, found.evidence.launches) == (0.1, 1)


def test_rounds_go_on_until_the_cause_is_decided() -> None:
    close = {TIE: 99.2}

    def latency(config: Config) -> float:
        return close.get(config, bowl(config))

    found = checked(subject(), ScriptedMeasurer(latency, noise=0.02, seed=3))
    assert found.now is not None
    assert SETTINGS.min_rounds < found.now.rounds <= SETTINGS.max_rounds


@pytest.mark.parametrize(
    ("measurer", "outcome"),
    [
        (lambda: ScriptedMeasurer(outcome=only(BEST, Outcome.WRONG_RESULT)), Outcome.WRONG_RESULT),
        (lambda: ScriptedMeasurer(fails_in_comparison=[BEST]), Outcome.CRASHED),
        (lambda: ScriptedMeasurer(outcome=lambda config: Outcome.TIMEOUT), Outcome.TIMEOUT),
    ],
)
def test_a_config_that_fails_is_broken(measurer: type[ScriptedMeasurer], outcome: Outcome) -> None:
    found = checked(subject(), measurer())
    assert found.cause is Cause.BROKEN
    assert found.error.startswith(f"{outcome}: as scripted")
    assert found.now is None
    assert found.then is not None


def test_a_recheck_on_other_inputs_may_find_it_broken() -> None:
    measurer = ScriptedMeasurer(with_a_tie, fails_recheck=[BEST])
    found = checked(subject(), measurer)
    assert found.cause is Cause.UNCHANGED
    broken = rechecked(found, BEST, measurer)
    assert (broken.cause, broken.error) == (Cause.BROKEN, "wrong_result: wrong on other inputs")
    assert [m.outcome for m in broken.measured if m.config == BEST] == [Outcome.WRONG_RESULT]
    assert rechecked(found, BEST, ScriptedMeasurer()).evidence.launches == 34


class FailsOnce(ScriptedMeasurer):
    """Times out the first time that the answer's config is measured, as on a host that is busy."""

    def next(self, timeout_s: float) -> Measurement | None:
        found = super().next(timeout_s)
        first = found is not None and found.config == BEST and self.submitted.count(BEST) == 1
        return replace(found, outcome=Outcome.TIMEOUT, samples=()) if found is not None and first else found


def test_a_failure_that_may_not_be_its_own_is_tried_again() -> None:
    assert checked(subject(), FailsOnce(with_a_tie)).cause is Cause.UNCHANGED


@pytest.mark.parametrize("other", [DEFAULT, TIE])
def test_another_config_that_fails_leaves_the_answer_alone(other: Config) -> None:
    for measurer in (
        ScriptedMeasurer(with_a_tie, fails_in_comparison=[other]),
        ScriptedMeasurer(with_a_tie, outcome=only(other, Outcome.COMPILE_ERROR)),
    ):
        found = checked(subject(), measurer)
        assert found.cause is Cause.UNCHANGED
        assert found.now is not None
        assert len(found.now.contenders) == 2


class Beside(ScriptedMeasurer):
    """Measures on a card that others use in the first rounds."""

    def __init__(self, times: int) -> None:
        super().__init__(with_a_tie)
        self.times = times

    def compare(self, configs: Sequence[Config], rounds: int, seconds: float, seed: int) -> Comparison | Measurement:
        found = super().compare(configs, rounds, seconds, seed)
        assert isinstance(found, Comparison)
        self.times -= 1
        return replace(found, states=(CardState(foreign=(4711,) if self.times >= 0 else ()),) * len(found.rounds))


def test_rounds_beside_other_processes_are_repeated_and_then_given_up() -> None:
    assert checked(subject(), Beside(1)).cause is Cause.UNCHANGED
    found = checked(subject(), Beside(99))
    assert found.cause is Cause.NOT_MEASURED
    assert found.error.startswith("other processes used the card; ")
    shared = check(subject(), Beside(99), is_shared=True)
    assert shared is not None
    assert (shared.cause, shared.now and shared.now.marks) == (Cause.UNCHANGED, ("contended",))


class Slow(ScriptedMeasurer):
    """Takes so long that no call returns more than a few rounds."""

    def compare(self, configs: Sequence[Config], rounds: int, seconds: float, seed: int) -> Comparison | Measurement:
        return super().compare(configs, min(rounds, 3) if seconds > 0 else 1, seconds, seed)


def test_too_few_rounds_decide_nothing() -> None:
    found = checked(subject(), Slow(with_a_tie), replace(SETTINGS, check_s=0.0, first_look_s=0.0))
    assert found.cause is Cause.NOT_MEASURED
    assert found.error == "too few rounds to decide within the time limit: 1"


def test_nor_do_too_few_stored_ones() -> None:
    rounds = first_rounds()
    given = subject(rounds=replace(rounds, rounds=rounds.rounds[:7]), provenance=replace(HERE, source="0000"))
    assert given.then is None
    assert checked(given, ScriptedMeasurer(lambda config: 2 * with_a_tie(config))).cause is Cause.UNCHANGED


def test_it_can_be_stopped() -> None:
    assert check(subject(), ScriptedMeasurer(), stop=lambda: True) is None
