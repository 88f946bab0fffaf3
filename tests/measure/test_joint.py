"""Joint measuring: the winner, configs that are not measured further, and one problem at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log2

import pytest
from scripted import BEST, DEFAULT, SPACE, TOY, ScriptedMeasurer, bowl, only

from tuner.errors import MeasureError
from tuner.kernels.spec import Config
from tuner.measure.joint import JointMeasurer, JointProblem
from tuner.measure.joint_comparison import OBJECTIVES, JointComparison
from tuner.records import VENDOR, Evidence, Measurement, Outcome, median
from tuner.search import Budget, Result, search

SMALL, LARGE = (TOY.problem({"N": size}) for size in (64, 4096))
THERE = TOY.config({"A": 2, "B": 1, "num_warps": 4, "num_stages": 1})
"""The default of the large problem."""
BEST_THERE = TOY.config({"A": 1, "B": 1, "num_warps": 1, "num_stages": 1})


def large(config: Config) -> float:
    """Return a latency on the large problem: 1 ms at best, at configs that are slow on the small one."""
    distance = 0.2 * log2(config["A"]) ** 2 + 0.1 * (config["B"] - 1) + 0.2 * (config["num_warps"] - 1)
    return 1000.0 * (1 + float(distance))


def brute_force(objective: str) -> dict[Config, float]:
    """Return the joined latency of each config."""
    join = OBJECTIVES[objective]
    return {c: join([bowl(c) / bowl(DEFAULT), large(c) / large(THERE)]) for c in SPACE}


class JointSearch:
    """Two scripted problems, of which one at a time may be measured, as on a card.

    `default`, `own` and `known` are those of the large problem.
    """

    def __init__(
        self,
        *measurers: ScriptedMeasurer,
        objective: str = "geomean",
        default: Config | None = THERE,
        own: Config | None = None,
        known: Sequence[Measurement] = (),
    ) -> None:
        self.small, self.large = measurers or (ScriptedMeasurer(), ScriptedMeasurer(large))
        self.small.closed = self.large.closed = True
        self.visits: list[int] = []
        self.measured: list[tuple[int, Measurement]] = []
        parts = [
            JointProblem(SMALL, self._measurer(0, self.small), DEFAULT),
            JointProblem(LARGE, self._measurer(1, self.large), default, own, known),
        ]
        self.joint = JointMeasurer(parts, OBJECTIVES[objective], lambda *measured: self.measured.append(measured))

    def _measurer(self, place: int, measurer: ScriptedMeasurer) -> Callable[[], ScriptedMeasurer]:
        def visit() -> ScriptedMeasurer:
            assert self.small.closed
            assert self.large.closed
            measurer.closed = False
            self.visits.append(place)
            return measurer

        return visit

    def search(self, trials: int | None = None, stop: Callable[[], bool] = lambda: False) -> Result:
        try:
            return search(SPACE, None, self.joint, budget=Budget(trials), stop=stop)
        finally:
            self.joint.close()


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_winner_is_that_of_brute_force(objective: str) -> None:
    """It is the best config of neither problem, and the two objectives have different winners."""
    problems = JointSearch(objective=objective)
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
    assert {m.config: m.samples for place, m in problems.measured if place == 0}[BEST] == (100.0,) * 12


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_with_noise_the_winner_is_within_a_percent(objective: str) -> None:
    """Each round of one problem is joined with one of the other, also after early elimination."""
    noisy = ScriptedMeasurer(noise=0.01, seed=1), ScriptedMeasurer(large, noise=0.01, seed=2)
    result = JointSearch(*noisy, objective=objective).search()
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


def test_a_batch_visits_each_problem() -> None:
    """Visits are few, each begins with the default, and nothing is measured twice."""
    problems = JointSearch()
    result = problems.search(trials=12)  # three batches of four, then the comparison
    assert len(result.measurements) == 12
    assert problems.visits[:4] == [0, 1, 0, 1]
    assert len(problems.visits) < 12
    assert (problems.small.submitted[0], problems.large.submitted[0]) == (DEFAULT, THERE)
    for place, measurer in enumerate((problems.small, problems.large)):
        assert len(set(measurer.submitted)) == len(measurer.submitted)
        assert measurer.closed
        assert [m.config for index, m in problems.measured if index == place] == measurer.submitted


def test_a_config_that_fails_on_one_problem_is_not_measured_further_and_never_wins() -> None:
    """The best config by brute force fails."""
    best, second = sorted(SPACE, key=brute_force("geomean").__getitem__)[:2]
    failing = [config for config in SPACE if (config["B"], config["num_warps"]) == (best["B"], best["num_warps"])]
    assert second not in failing
    measurer = ScriptedMeasurer(outcome=lambda config: Outcome.TIMEOUT if config in failing else Outcome.OK)
    problems = JointSearch(measurer, ScriptedMeasurer(large))
    result = problems.search()
    assert result.verdict is not None
    assert result.verdict.config == second
    assert {m.config for m in result.measurements if not m.ok} == {*failing}
    assert {m.error for m in result.measurements if not m.ok} == {"as scripted (on toy N=64 dtype=fp32)"}
    assert {*failing} - {*problems.large.submitted}


def test_a_config_far_behind_on_one_problem_is_not_measured_further() -> None:
    """At A=16 the large problem takes nine times as long, so those configs skip the small one."""
    slow = ScriptedMeasurer(lambda config: large(config) * (9 if config["A"] == 16 else 1))
    problems = JointSearch(ScriptedMeasurer(), slow, objective="worst")
    result = problems.search()
    assert result.stopped == "exhausted"
    assert len(problems.large.submitted) == len(SPACE)
    assert len(problems.small.submitted) < len(SPACE) - 3
    assert result.verdict is not None
    assert result.verdict.config == min(SPACE, key=brute_force("worst").__getitem__)


@pytest.mark.parametrize("default", [None, THERE])
def test_without_a_default_the_fastest_of_the_first_batch_is_the_baseline(default: Config | None) -> None:
    problems = JointSearch(
        ScriptedMeasurer(), ScriptedMeasurer(large, outcome=only(THERE, Outcome.WRONG_RESULT)), default=default
    )
    result = problems.search()
    comparison = result.comparison
    assert isinstance(comparison, JointComparison)
    (_, (baseline, *_)) = comparison.companions
    first = [config for config in problems.large.submitted if config != THERE][:4]
    assert baseline == min(first, key=large).text
    assert result.verdict is not None
    assert result.verdict.config == min(SPACE, key=brute_force("geomean").__getitem__)  # for any baseline


def test_a_baseline_is_timed_in_several_rounds() -> None:
    """A single measurement of the default is off by two here, and would change the worst problem."""
    measurer = ScriptedMeasurer(large, luck=lambda config: 2.0 if config == THERE else 1.0)
    result = JointSearch(ScriptedMeasurer(), measurer, objective="worst").search()
    joined = brute_force("worst")
    assert result.verdict is not None
    assert result.verdict.config == min(SPACE, key=joined.__getitem__)
    found = {measurement.config: measurement.latency_us for measurement in result.measurements}
    assert found[BEST] == pytest.approx(joined[BEST])


def test_the_own_answer_is_compared_and_left_out_if_it_fails() -> None:
    with_it = JointSearch(own=BEST_THERE).search()
    assert isinstance(with_it.comparison, JointComparison)
    assert with_it.comparison.companions == ((DEFAULT.text,), (THERE.text, BEST_THERE.text))
    assert median(with_it.comparison.parts[1].of(BEST_THERE.text)) == pytest.approx(1000.0)
    assert BEST_THERE.text not in with_it.comparison.contenders
    problems = JointSearch(
        ScriptedMeasurer(), ScriptedMeasurer(large, fails_in_comparison=[BEST_THERE]), own=BEST_THERE
    )
    without = problems.search(trials=8)
    assert isinstance(without.comparison, JointComparison)
    assert without.comparison.companions == ((DEFAULT.text,), (THERE.text,))
    assert problems.measured[-1][1].outcome is Outcome.CRASHED


@pytest.mark.parametrize("fault", ["fails_in_comparison", "fails_recheck"])
def test_a_finalist_that_fails_on_one_problem_is_out(fault: str) -> None:
    winner = min(SPACE, key=brute_force("geomean").__getitem__)
    problems = JointSearch(ScriptedMeasurer(), ScriptedMeasurer(large, **{fault: [winner]}))  # type: ignore[arg-type]
    result = problems.search()
    assert result.verdict is not None
    assert result.verdict.config != winner
    assert sum(result.failures.values()) == 1
    assert [(place, m.config) for place, m in problems.measured if not m.ok] == [(1, winner)]
    evidence = result.evidence[result.verdict.config]
    assert evidence == Evidence(0.05, 0.1, ("normal", "special"), 68)


def test_measurements_of_earlier_runs_are_not_repeated() -> None:
    first = JointSearch()
    first.search(trials=20)
    known = [measurement for place, measurement in first.measured if place == 1]
    again = JointSearch(known=known)
    result = again.search(trials=20)
    assert again.small.submitted == first.small.submitted
    assert again.large.submitted == []
    assert len(result.measurements) == 20


class StallingMeasurer(ScriptedMeasurer):
    """A measurer of the large problem that gives the default and two configs, and no more."""

    def next(self, timeout_s: float) -> Measurement | None:
        return super().next(timeout_s) if self.measured < 3 else None


def test_a_search_stopped_during_a_batch_has_reported_what_was_measured() -> None:
    problems = JointSearch(ScriptedMeasurer(), StallingMeasurer(large))
    result = problems.search(stop=lambda: len(problems.measured) == 8)
    assert result.stopped == "interrupted"
    assert [place for place, _ in problems.measured] == [0] * 5 + [1] * 3
    assert result.measurements == ()
    assert problems.large.closed


def test_when_time_is_up_configs_measured_on_all_problems_count() -> None:
    problems = JointSearch(ScriptedMeasurer(), StallingMeasurer(large))
    try:
        result = search(SPACE, None, problems.joint, budget=Budget(seconds=0.2))
    finally:
        problems.joint.close()
    assert result.stopped == "budget"
    assert [m.config for m in result.measurements] == problems.large.submitted[1:3]
    assert result.verdict is not None
    assert result.verdict.config in problems.large.submitted[1:3]


def test_without_a_running_config_on_one_problem_there_is_no_verdict() -> None:
    problems = JointSearch(ScriptedMeasurer(), ScriptedMeasurer(large, outcome=lambda config: Outcome.CRASHED))
    result = problems.search(trials=10)
    assert result.verdict is None
    assert result.failures == {"crashed": 10}
    with pytest.raises(MeasureError, match="a config that runs on toy N=4096 dtype=fp32"):
        problems.joint.compare([DEFAULT], 1, 1.0, 0)


def test_finalists_are_checked_problem_by_problem() -> None:
    problems = JointSearch()
    checked = problems.joint.recheck(SPACE[:20], seed=0)
    assert problems.visits == [0, 1]
    assert checked == [Evidence(0.05, 0.1, ("normal", "special"), 2 * 34)] * 20
