"""The interleaved comparison of the finalists: rounds, early elimination and recheck."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import sleep

import pytest
from scripted import BEST, DEFAULT, SPACE, TOY, ScriptedMeasurer
from shipped_spaces import shipped

from tuner.errors import MeasureError
from tuner.kernels.spec import Config
from tuner.recorded import RecordedMeasurer
from tuner.records import Comparison, Evidence, Measurement, Outcome
from tuner.search import Budget, ComparisonSettings, search


def test_a_finalist_that_is_wrong_on_other_inputs_is_out() -> None:
    reported: list[Measurement] = []
    result = search(SPACE, DEFAULT, ScriptedMeasurer(fails_recheck=[BEST]), on_trial=reported.append)
    assert result.verdict is not None
    assert result.verdict.config != BEST
    assert reported[-1].config == BEST
    assert reported[-1].outcome is Outcome.WRONG_RESULT
    assert result.failures == {"wrong_result": 1}


def test_a_finalist_that_fails_in_the_comparison_is_out() -> None:
    reported: list[Measurement] = []
    result = search(SPACE, DEFAULT, ScriptedMeasurer(fails_in_comparison=[BEST]), on_trial=reported.append)
    assert result.verdict is not None
    assert result.verdict.config != BEST
    assert reported[-1].config == BEST
    assert reported[-1].outcome is Outcome.CRASHED


def test_when_time_is_up_the_comparison_still_has_a_few_rounds() -> None:
    class Slow(ScriptedMeasurer):
        def compare(
            self, configs: Sequence[Config], rounds: int, seconds: float, seed: int
        ) -> Comparison | Measurement:
            return super().compare(configs, min(rounds, int(seconds / 0.05)), seconds, seed)

    result = search(SPACE, DEFAULT, Slow(), budget=Budget(seconds=0.01))
    assert result.verdict is not None
    assert result.verdict.rounds >= 8


def test_an_unresolved_comparison_ends_at_the_maximum_of_rounds() -> None:
    def flat(config: Config) -> float:
        return 100.0

    result = search(SPACE, DEFAULT, ScriptedMeasurer(flat, noise=0.05), budget=Budget(trials=12))
    assert result.comparison is not None
    assert len(result.comparison.rounds) == 200
    assert result.verdict is not None
    assert result.verdict.unresolved


@pytest.mark.parametrize(
    ("elimination_s", "fewest", "most"), [(None, 200, 200), (30.0, 200, 200), (0.2, 20, 60), (0.001, 20, 20)]
)
def test_early_elimination_limits_the_time_of_an_unresolved_comparison(
    elimination_s: float | None, fewest: int, most: int
) -> None:
    """But it has twenty rounds; without early elimination it has as many as the verdict needs."""

    class Slow(ScriptedMeasurer):
        def compare(
            self, configs: Sequence[Config], rounds: int, seconds: float, seed: int
        ) -> Comparison | Measurement:
            rounds = max(1, min(rounds, round(seconds / 0.004)))
            sleep(rounds * 0.004)
            return super().compare(configs, rounds, seconds, seed)

    measurer = Slow(lambda config: 100.0, noise=0.05)
    result = search(
        SPACE, DEFAULT, measurer, budget=Budget(trials=12), comparison=ComparisonSettings(elimination_s=elimination_s)
    )
    assert result.verdict is not None
    assert fewest <= result.verdict.rounds <= most


def test_a_comparison_ends_with_the_last_recorded_round() -> None:
    """The recorded space has 20, which do not separate its best configs."""
    space = shipped("softmax-8192x8192-fp32-nvidia-h200")
    space = replace(
        space,
        comparison=replace(space.comparison, rounds=space.comparison.rounds[:20], states=space.comparison.states[:20]),
    )
    configs = [measurement.config for measurement in space.measurements]
    result = search(configs, space.default, RecordedMeasurer(space), sampler="grid")
    assert result.verdict is not None
    assert result.verdict.unresolved
    assert result.verdict.rounds == len(space.comparison.rounds) == 20
    without = RecordedMeasurer(replace(space, comparison=replace(space.comparison, rounds=(), states=())))
    with pytest.raises(
        MeasureError, match="an interleaved comparison needs at least one round, and the measurer gave none"
    ):
        search(configs, space.default, without, sampler="grid")


def test_one_lucky_measurement_does_not_exclude_the_other_finalists() -> None:
    """Half of the space is within 10 % of the best. One config measures 15 % faster than it is in the comparison."""
    lucky = TOY.config({"A": 16, "B": 1, "num_warps": 1, "num_stages": 1})

    def latency_us(config: Config) -> float:
        return 100.0 + (0.1 if config["num_warps"] == 4 else 5.0) * float(config["B"]) + float(config["A"]) / 100

    measurer = ScriptedMeasurer(latency_us, noise=0.01, luck=lambda config: 0.85 if config == lucky else 1.0)
    result = search(SPACE, None, measurer, sampler="grid")
    assert result.best is not None
    assert result.best.config == lucky
    assert result.verdict is not None
    assert {tie.config["num_warps"] for tie in result.verdict.ties} == {4}
    assert len(result.verdict.ties) == 19


def test_at_the_first_look_only_contenders_that_are_far_slower_leave() -> None:
    """A contender 1.5 % slower has twelve more rounds. No contender is rechecked before they end."""
    near, far = (TOY.config({**BEST, **change}) for change in ({"A": 16}, {"A": 1, "B": 1}))
    scripted = {BEST: 100.0, near: 101.5, far: 103.0}
    compared: list[tuple[set[Config], int]] = []

    class Watched(ScriptedMeasurer):
        def compare(
            self, configs: Sequence[Config], rounds: int, seconds: float, seed: int
        ) -> Comparison | Measurement:
            compared.append(({*configs}, rounds))
            return super().compare(configs, rounds, seconds, seed)

        def recheck(self, configs: Sequence[Config], seed: int) -> Sequence[Evidence | Measurement]:
            assert sum(rounds for _, rounds in compared) == 20
            return super().recheck(configs, seed)

    measurer = Watched(lambda config: scripted.get(config, 150.0), noise=0.0001)
    result = search(SPACE, DEFAULT, measurer, winners=[BEST, near, far], budget=Budget(trials=60), seed=3)
    assert [({BEST, near, far} & configs, rounds) for configs, rounds in compared] == [
        ({BEST, near, far}, 8),
        ({BEST, near}, 12),
    ]
    assert result.comparison is not None
    assert near.text not in result.comparison.contenders


def test_rounds_are_reported_with_the_contenders_that_are_left() -> None:
    near, far = (TOY.config({**BEST, **change}) for change in ({"A": 16}, {"A": 1, "B": 1}))
    scripted = {BEST: 100.0, near: 101.5, far: 103.0}
    reported: list[tuple[int, int]] = []
    result = search(
        SPACE,
        None,
        ScriptedMeasurer(lambda config: scripted.get(config, 150.0), noise=0.0001),
        winners=[BEST, near, far],
        on_round=lambda rounds, contenders: reported.append((rounds, contenders)),
    )
    assert reported == [(8, 2), (20, 1)]
    assert result.verdict is not None
    assert result.verdict.rounds == 20
