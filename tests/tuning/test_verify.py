"""Measuring an answer again: when it holds, when it changed, when it is wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from scripted import BEST, DEFAULT, SPACE, TOY, ScriptedMeasurer, bowl

from tuner.kernels.spec import Config
from tuner.measure.measurer import Measurer
from tuner.records import VENDOR, Answer, Comparison, Evidence, Outcome, Tie
from tuner.search import Budget, search
from tuner.tuning.verify import Check, judge, overlap, verify

PROBLEM = TOY.problem({"N": 64})
TIE = TOY.config({"A": 16, "B": 3, "num_warps": 4, "num_stages": 1})
EVIDENCE = Evidence(0.05, 0.1, ("normal",), 17)


def answer(speedup: float = 1.75, config: Config = BEST) -> Answer:
    return Answer(
        problem=PROBLEM,
        kind="tuned",
        config=config,
        latency_us=100.0,
        interval_us=(99.9, 100.1),
        speedup=speedup,
        speedup_interval=(speedup - 0.002, speedup + 0.002),
        default_latency_us=100.0 * speedup,
        vendor_latency_us=120.0,
        ties=(Tie(TIE, 1.001, (0.999, 1.003)),),
    )


def judged(own: float, default: float, tie: float, given: Answer | None = None) -> Check:
    contenders = (BEST, TIE, DEFAULT)
    once = (own, tie, default, 120.0)
    comparison = Comparison((*(config.text for config in contenders), VENDOR), (once,) * 20)
    return judge(given or answer(), DEFAULT, contenders, comparison, EVIDENCE)


class TestJudge:
    def test_the_same_again_holds(self) -> None:
        check = judged(100.0, 175.0, 100.1)
        assert check.outcome == "holds"
        assert check.latency_us == 100.0
        assert check.speedup == pytest.approx(1.75)

    def test_a_card_that_runs_slower_in_all_changes_nothing(self) -> None:
        assert judged(107.0, 1.07 * 175.0, 107.1).outcome == "holds"

    def test_less_than_a_percent_is_no_change(self) -> None:
        assert judged(100.0, 174.0, 100.1).outcome == "holds"

    @pytest.mark.parametrize("default", [150.0, 200.0])
    def test_another_speedup_is_a_change(self, default: float) -> None:
        check = judged(100.0, default, 100.1)
        assert check.outcome == "changed"
        assert check.changes == (
            "it was 1.750 x default (1.748 - 1.752), "
            f"and is {default / 100:.3f} x default ({default / 100:.3f} - {default / 100:.3f})",
        )

    def test_slower_than_the_default_is_a_change(self) -> None:
        check = judged(100.0, 97.0, 100.1)
        assert check.changes == ("it is slower than the default: 0.970 x default (0.970 - 0.970)",)

    def test_a_tie_that_has_become_faster_is_a_change(self) -> None:
        check = judged(100.0, 175.0, 90.0)
        assert check.changes == (
            f"a tie took 1.001 (0.999 - 1.003) of its time, and takes 0.900 (0.900 - 0.900): {TIE.text}",
        )

    def test_the_default_as_an_answer_is_compared_with_its_ties(self) -> None:
        given = answer(1.0, DEFAULT)
        comparison = Comparison((DEFAULT.text, TIE.text, VENDOR), ((100.0, 100.2, 120.0),) * 20)
        assert judge(given, DEFAULT, (DEFAULT, TIE), comparison, EVIDENCE).outcome == "holds"
        comparison = Comparison((DEFAULT.text, TIE.text, VENDOR), ((100.0, 95.0, 120.0),) * 20)
        assert judge(given, DEFAULT, (DEFAULT, TIE), comparison, EVIDENCE).outcome == "changed"

    def test_without_a_default_the_ties_are_all_there_is(self) -> None:
        comparison = Comparison((BEST.text, TIE.text, VENDOR), ((100.0, 100.2, 120.0),) * 20)
        check = judge(answer(), None, (BEST, TIE), comparison, EVIDENCE)
        assert (check.outcome, check.speedup, check.speedup_interval) == ("holds", None, None)


def _found(measurer: Measurer) -> Answer:
    """What a search answers."""
    verdict = search(SPACE, DEFAULT, measurer, budget=Budget(trials=60)).verdict
    assert verdict is not None
    given = answer(1.0, verdict.config)
    fields = {name: getattr(verdict, name) for name in ("speedup", "speedup_interval", "ties", "latency_us")}
    return Answer(**{**{name: getattr(given, name) for name in given.__dataclass_fields__}, **fields})


def _with_a_tie(config: Config) -> float:
    return 100.2 if config == TIE else bowl(config)


class TestVerify:
    @pytest.mark.parametrize("seed", range(5))
    def test_what_a_search_answers_holds_the_next_day(self, seed: int) -> None:
        found = _found(ScriptedMeasurer(noise=0.01, seed=seed))
        check = verify(found, DEFAULT, ScriptedMeasurer(noise=0.01, seed=100 + seed))
        assert check.outcome == "holds", check.changes
        assert check.evidence == Evidence(0.05, 0.1, ("normal", "special"), 34)
        assert check.speedup_interval is not None
        assert found.speedup_interval is not None
        assert overlap(check.speedup_interval, found.speedup_interval)

    @pytest.mark.parametrize(
        ("measurer", "outcome"),
        [
            (lambda: ScriptedMeasurer(fails_recheck=[BEST]), Outcome.WRONG_RESULT),
            (lambda: ScriptedMeasurer(fails_in_comparison=[BEST]), Outcome.CRASHED),
            (lambda: ScriptedMeasurer(outcome=lambda config: Outcome.TIMEOUT), Outcome.TIMEOUT),
        ],
    )
    def test_an_answer_that_fails_is_wrong(self, measurer: Callable[[], Measurer], outcome: Outcome) -> None:
        check = verify(answer(), DEFAULT, measurer())
        assert check.outcome == "wrong"
        assert check.wrong is not None
        assert check.wrong.outcome is outcome
        assert check.as_json()["error"].startswith(f"{outcome}: ")

    def test_a_default_that_fails_leaves_the_answer_alone(self) -> None:
        measurer = ScriptedMeasurer(_with_a_tie, fails_recheck=[DEFAULT])
        check = verify(answer(), DEFAULT, measurer)
        assert (check.outcome, check.speedup) == ("holds", None)

    def test_only_the_answer_its_ties_and_the_default_are_measured(self) -> None:
        measurer = ScriptedMeasurer(_with_a_tie)
        assert verify(answer(2.5), DEFAULT, measurer).outcome == "holds"
        assert set(measurer.submitted) == {BEST, TIE, DEFAULT}


@pytest.mark.parametrize(
    ("a", "b", "have"),
    [((1, 2), (2, 3), True), ((1, 2), (2.1, 3), False), ((2, 3), (1, 4), True), ((3, 4), (1, 2), False)],
)
def test_intervals_overlap(a: tuple[float, float], b: tuple[float, float], have: bool) -> None:
    assert overlap(a, b) is have
