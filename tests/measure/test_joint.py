"""Several problems as one: which config wins, who is spared what, and that only one problem is at work at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log2

import pytest
from scripted import BEST, DEFAULT, SPACE, TOY, ScriptedMeasurer, bowl, only

from tuner.errors import MeasureError
from tuner.kernels.spec import Config
from tuner.measure.joint import OBJECTIVES, JointComparison, JointMeasurer, JointProblem
from tuner.records import VENDOR, Evidence, Measurement, Outcome, median
from tuner.search.loop import Budget, Result, search

SMALL, LARGE = (TOY.problem({"N": size}) for size in (64, 4096))
THERE = TOY.config({"A": 2, "B": 1, "num_warps": 4, "num_stages": 1})
"""The default of the large problem."""
BEST_THERE = TOY.config({"A": 1, "B": 1, "num_warps": 1, "num_stages": 1})


def large(config: Config) -> float:
    """The large problem: 1 ms at best, where the small one is slow."""
    distance = 0.2 * log2(config["A"]) ** 2 + 0.1 * (config["B"] - 1) + 0.2 * (config["num_warps"] - 1)
    return 1000.0 * (1 + float(distance))


def brute_force(objective: str) -> dict[Config, float]:
    """What every config comes to."""
    join = OBJECTIVES[objective]
    return {c: join([bowl(c) / bowl(DEFAULT), large(c) / large(THERE)]) for c in SPACE}


class Problems:
    """Two scripted problems of which one at a time is at work, as on a card."""

    def __init__(
        self,
        *measurers: ScriptedMeasurer,
        objective: str = "geomean",
        default: Config | None = THERE,
        own: Config | None = None,
        known: Sequence[Measurement] = (),
    ) -> None:
        """Of the large problem the default, the own answer and what is known."""
        self.small, self.large = measurers or (ScriptedMeasurer(), ScriptedMeasurer(large))
        self.small.closed = self.large.closed = True
        self.turns: list[int] = []
        self.told: list[tuple[int, Measurement]] = []
        parts = [
            JointProblem(SMALL, self._turn(0, self.small), DEFAULT),
            JointProblem(LARGE, self._turn(1, self.large), default, own, known),
        ]
        self.joint = JointMeasurer(parts, OBJECTIVES[objective], lambda *measured: self.told.append(measured))

    def _turn(self, place: int, measurer: ScriptedMeasurer) -> Callable[[], ScriptedMeasurer]:
        def turn() -> ScriptedMeasurer:
            assert self.small.closed
            assert self.large.closed
            measurer.closed = False
            self.turns.append(place)
            return measurer

        return turn

    def search(self, trials: int | None = None, stop: Callable[[], bool] = lambda: False) -> Result:
        try:
            return search(SPACE, None, self.joint, budget=Budget(trials), stop=stop)
        finally:
            self.joint.close()


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_winner_is_the_one_that_brute_force_gives(objective: str) -> None:
    """It is the best of neither problem, and the two objectives differ."""
    problems = Problems(objective=objective)
    result = problems.search()
    joined = brute_force(objective)
    winner = min(SPACE, key=joined.__getitem__)
    assert result.stopped == "exhausted"
    assert result.verdict is not None
    assert result.verdict.config == winner
    assert result.verdict.latency_us == pytest.approx(joined[winner])
    assert winner not in (BEST, BEST_THERE)
    assert len({min(SPACE, key=brute_force(name).__getitem__) for name in OBJECTIVES}) == 2
    comparison = result.comparison
    assert isinstance(comparison, JointComparison)
    assert [median(part.of(winner.text)) for part in comparison.parts] == pytest.approx([bowl(winner), large(winner)])
    assert [baseline for baseline, *_ in comparison.companions] == [DEFAULT.text, THERE.text]
    assert {m.config: m.samples for place, m in problems.told if place == 0}[BEST] == (100.0,) * 12


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_with_noise_it_is_one_that_is_as_good(objective: str) -> None:
    """Each round of one problem is joined with one of the other, whoever was sent home."""
    noisy = ScriptedMeasurer(noise=0.01, seed=1), ScriptedMeasurer(large, noise=0.01, seed=2)
    result = Problems(*noisy, objective=objective).search()
    joined = brute_force(objective)
    assert result.verdict is not None
    assert joined[result.verdict.config] <= 1.01 * min(joined.values())
    comparison = result.comparison
    assert isinstance(comparison, JointComparison)
    (one, other), ((its_default,), (others_default,)) = comparison.parts, comparison.companions
    of_a_round = zip(
        *(one.of(VENDOR), one.of(its_default), other.of(VENDOR), other.of(others_default), comparison.of(VENDOR)),
        strict=True,
    )
    assert all(joined == OBJECTIVES[objective]([a / b, c / d]) for a, b, c, d, joined in of_a_round)


def test_a_batch_goes_from_problem_to_problem_and_back() -> None:
    """Turns are few, each problem's default is there at the first, and nothing is measured twice."""
    problems = Problems()
    result = problems.search(trials=12)  # three batches of four, then the duel
    assert len(result.measurements) == 12
    assert problems.turns[:4] == [0, 1, 0, 1]
    assert len(problems.turns) < 12
    assert (problems.small.submitted[0], problems.large.submitted[0]) == (DEFAULT, THERE)
    for place, measurer in enumerate((problems.small, problems.large)):
        assert len(set(measurer.submitted)) == len(measurer.submitted)
        assert measurer.closed
        assert [m.config for told, m in problems.told if told == place] == measurer.submitted


def test_what_fails_on_one_problem_is_spared_the_others_and_never_wins() -> None:
    """The best by brute force is among them."""
    best, second = sorted(SPACE, key=brute_force("geomean").__getitem__)[:2]
    failing = [config for config in SPACE if (config["B"], config["num_warps"]) == (best["B"], best["num_warps"])]
    assert second not in failing
    measurer = ScriptedMeasurer(outcome=lambda config: Outcome.TIMEOUT if config in failing else Outcome.OK)
    problems = Problems(measurer, ScriptedMeasurer(large))
    result = problems.search()
    assert result.verdict is not None
    assert result.verdict.config == second
    assert {m.config for m in result.measurements if not m.ok} == {*failing}
    assert {m.error for m in result.measurements if not m.ok} == {"toy N=64 dtype=fp32: as scripted"}
    assert {*failing} - {*problems.large.submitted}


def test_what_is_far_behind_on_one_problem_is_spared_the_others() -> None:
    """At A=16 the large problem takes five times as long, so nothing is asked of the small one."""
    slow = ScriptedMeasurer(lambda config: large(config) * (9 if config["A"] == 16 else 1))
    problems = Problems(ScriptedMeasurer(), slow, objective="worst")
    result = problems.search()
    assert result.stopped == "exhausted"
    assert len(problems.large.submitted) == len(SPACE)
    assert len(problems.small.submitted) < len(SPACE) - 3
    assert result.verdict is not None
    assert result.verdict.config == min(SPACE, key=brute_force("worst").__getitem__)


@pytest.mark.parametrize("default", [None, THERE])
def test_where_a_default_does_not_run_the_fastest_of_the_first_stands_in(default: Config | None) -> None:
    problems = Problems(
        ScriptedMeasurer(), ScriptedMeasurer(large, outcome=only(THERE, Outcome.WRONG_RESULT)), default=default
    )
    result = problems.search()
    comparison = result.comparison
    assert isinstance(comparison, JointComparison)
    (_, (baseline, *_)) = comparison.companions
    first = [config for config in problems.large.submitted if config != THERE][:4]
    assert baseline == min(first, key=large).text
    assert result.verdict is not None
    assert result.verdict.config == min(SPACE, key=brute_force("geomean").__getitem__)  # whatever the yardstick is


def test_a_yardstick_is_not_a_single_visit() -> None:
    """Read alone, the default takes twice what it takes in rounds with others, which would make another worst."""
    measurer = ScriptedMeasurer(large, luck=lambda config: 2.0 if config == THERE else 1.0)
    result = Problems(ScriptedMeasurer(), measurer, objective="worst").search()
    joined = brute_force("worst")
    assert result.verdict is not None
    assert result.verdict.config == min(SPACE, key=joined.__getitem__)
    found = {measurement.config: measurement.latency_us for measurement in result.measurements}
    assert found[BEST] == pytest.approx(joined[BEST])


def test_the_own_answer_meets_the_others_and_is_missed_by_nobody_where_it_fails() -> None:
    with_it = Problems(own=BEST_THERE).search()
    assert isinstance(with_it.comparison, JointComparison)
    assert with_it.comparison.companions == ((DEFAULT.text,), (THERE.text, BEST_THERE.text))
    assert median(with_it.comparison.parts[1].of(BEST_THERE.text)) == pytest.approx(1000.0)
    assert BEST_THERE.text not in with_it.comparison.contenders
    problems = Problems(ScriptedMeasurer(), ScriptedMeasurer(large, fails_in_comparison=[BEST_THERE]), own=BEST_THERE)
    without = problems.search(trials=8)
    assert isinstance(without.comparison, JointComparison)
    assert without.comparison.companions == ((DEFAULT.text,), (THERE.text,))
    assert problems.told[-1][1].outcome is Outcome.CRASHED


@pytest.mark.parametrize("fault", ["fails_in_comparison", "fails_recheck"])
def test_a_finalist_that_fails_on_one_problem_is_out(fault: str) -> None:
    winner = min(SPACE, key=brute_force("geomean").__getitem__)
    problems = Problems(ScriptedMeasurer(), ScriptedMeasurer(large, **{fault: [winner]}))  # type: ignore[arg-type]
    result = problems.search()
    assert result.verdict is not None
    assert result.verdict.config != winner
    assert sum(result.failures.values()) == 1
    assert [(place, m.config) for place, m in problems.told if not m.ok] == [(1, winner)]
    evidence = result.evidence[result.verdict.config]
    assert evidence == Evidence(0.05, 0.1, ("normal", "special"), 68)


def test_what_earlier_runs_measured_is_not_measured_again() -> None:
    first = Problems()
    first.search(trials=20)
    known = [measurement for place, measurement in first.told if place == 1]
    again = Problems(known=known)
    result = again.search(trials=20)
    assert again.small.submitted == first.small.submitted
    assert again.large.submitted == []
    assert len(result.measurements) == 20


class Tires(ScriptedMeasurer):
    """Of the large problem: gives the default and two configs, and no more."""

    def next(self, timeout_s: float) -> Measurement | None:
        return super().next(timeout_s) if self.measured < 3 else None


def test_a_search_that_is_stopped_amid_a_batch_has_told_what_was_measured() -> None:
    problems = Problems(ScriptedMeasurer(), Tires(large))
    result = problems.search(stop=lambda: len(problems.told) == 8)
    assert result.stopped == "interrupted"
    assert [place for place, _ in problems.told] == [0] * 5 + [1] * 3
    assert result.measurements == ()
    assert problems.large.closed


def test_when_time_is_up_amid_a_batch_what_was_measured_everywhere_counts() -> None:
    problems = Problems(ScriptedMeasurer(), Tires(large))
    try:
        result = search(SPACE, None, problems.joint, budget=Budget(seconds=0.2))
    finally:
        problems.joint.close()
    assert result.stopped == "budget"
    assert [m.config for m in result.measurements] == problems.large.submitted[1:3]
    assert result.verdict is not None
    assert result.verdict.config in problems.large.submitted[1:3]


def test_when_nothing_runs_on_one_problem_there_is_no_verdict() -> None:
    problems = Problems(ScriptedMeasurer(), ScriptedMeasurer(large, outcome=lambda config: Outcome.CRASHED))
    result = problems.search(trials=10)
    assert result.verdict is None
    assert result.failures == {"crashed": 10}
    with pytest.raises(MeasureError, match="no config is left that runs on toy N=4096 dtype=fp32"):
        problems.joint.compare([DEFAULT], 1, 1.0, 0)


def test_finalists_are_checked_problem_by_problem() -> None:
    problems = Problems()
    checked = problems.joint.recheck(SPACE[:20], seed=0)
    assert problems.turns == [0, 1]
    assert checked == [Evidence(0.05, 0.1, ("normal", "special"), 2 * 34)] * 20
