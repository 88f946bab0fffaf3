"""The search loop, on scripts and on recorded spaces: one contract for every measurer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from time import sleep

import pytest
from contracts import SearchContract, Subject
from scripted import BEST, DEFAULT, SPACE, TOY, ScriptedMeasurer, bowl, only

from tuner import recorded
from tuner.errors import MeasureError
from tuner.kernels.spec import Config, Dim, Knob, Signature
from tuner.measure.joint import JointMeasurer, JointProblem
from tuner.measure.joint_comparison import OBJECTIVES
from tuner.recorded import RecordedMeasurer
from tuner.records import Comparison, Evidence, Measurement, Outcome
from tuner.search import Budget, ComparisonSettings, Result, close_to_best, search


@cache
def _subject(name: str) -> Subject:
    if name == "scripted":
        return Subject(SPACE, DEFAULT, ScriptedMeasurer)
    if name == "joint":
        parts = [JointProblem(TOY.problem({"N": size}), ScriptedMeasurer, DEFAULT) for size in (64, 4096)]
        return Subject(SPACE, DEFAULT, lambda: JointMeasurer(parts, OBJECTIVES["geomean"]))
    space = recorded.load(name)
    configs = [measurement.config for measurement in space.measurements]
    return Subject(configs, space.default, lambda: RecordedMeasurer(space))


class TestSearch(SearchContract):
    @pytest.fixture(params=["scripted", "joint", *recorded.names()])
    def subject(self, request: pytest.FixtureRequest) -> Subject:
        return _subject(request.param)

    def test_the_same_seed_gives_the_same_trials(self, subject: Subject) -> None:
        def configs(seed: int) -> list[Config]:
            result = search(subject.space, subject.default, subject.measurer(), seed=seed, budget=Budget(trials=25))
            return [measurement.config for measurement in result.measurements]

        assert configs(1) == configs(1)
        assert configs(1) != configs(2)


def test_an_exhausted_space_ends_the_search() -> None:
    measurer = ScriptedMeasurer()
    result = search(SPACE, DEFAULT, measurer, budget=Budget(trials=1000))
    assert result.stopped == "exhausted"
    assert sorted(measurer.submitted, key=SPACE.index) == SPACE
    assert result.verdict is not None
    assert result.verdict.config == BEST


def test_a_search_that_expects_nothing_better_ends() -> None:
    """Where the sampler can tell; one that takes what comes goes on."""
    result = search(SPACE, DEFAULT, ScriptedMeasurer(), budget=Budget(min_improvement_probability=0.05))
    assert result.stopped == "converged"
    assert 30 <= len(result.measurements) < 60
    assert result.verdict is not None
    assert result.verdict.config == BEST
    assert (
        search(
            SPACE, DEFAULT, ScriptedMeasurer(), sampler="random", budget=Budget(min_improvement_probability=0.05)
        ).stopped
        == "exhausted"
    )


def test_an_infeasible_config_is_tried_once() -> None:
    measurer = ScriptedMeasurer(outcome=lambda config: Outcome.INFEASIBLE if config["A"] > 4 else Outcome.OK)
    result = search(SPACE, DEFAULT, measurer, budget=Budget(trials=50))
    assert len(set(measurer.submitted)) == len(measurer.submitted) == 50
    assert result.failures["infeasible"] > 0
    assert result.verdict is not None
    assert result.verdict.config["A"] == 4


def test_a_failure_is_never_the_best() -> None:
    """The fastest config of all computes nothing."""
    measurer = ScriptedMeasurer(outcome=only(BEST, Outcome.WRONG_RESULT))
    result = search(SPACE, DEFAULT, measurer)
    assert result.verdict is not None
    assert result.verdict.config != BEST
    assert result.best is not None
    assert result.best.config != BEST


def test_a_finalist_that_is_wrong_on_other_inputs_is_out() -> None:
    told: list[Measurement] = []
    result = search(SPACE, DEFAULT, ScriptedMeasurer(fails_recheck=[BEST]), on_trial=told.append)
    assert result.verdict is not None
    assert result.verdict.config != BEST
    assert told[-1].config == BEST
    assert told[-1].outcome is Outcome.WRONG_RESULT
    assert result.failures == {"wrong_result": 1}


def test_a_finalist_that_fails_in_the_duel_is_out() -> None:
    told: list[Measurement] = []
    result = search(SPACE, DEFAULT, ScriptedMeasurer(fails_in_comparison=[BEST]), on_trial=told.append)
    assert result.verdict is not None
    assert result.verdict.config != BEST
    assert told[-1].config == BEST
    assert told[-1].outcome is Outcome.CRASHED


@pytest.mark.parametrize("outcome", [Outcome.CRASHED, Outcome.WRONG_RESULT, Outcome.TIMEOUT])
def test_when_all_fail_there_is_no_verdict(outcome: Outcome) -> None:
    result = search(SPACE, DEFAULT, ScriptedMeasurer(outcome=lambda config: outcome), budget=Budget(trials=20))
    assert result.verdict is None
    assert result.best is None
    assert result.failures == {str(outcome): 20}


def test_a_wrong_default_does_not_throw_out_the_others() -> None:
    result = search(SPACE, DEFAULT, ScriptedMeasurer(outcome=only(DEFAULT, Outcome.WRONG_RESULT)))
    assert result.verdict is not None
    assert result.verdict.config == BEST
    assert result.verdict.default_latency_us is None
    assert result.verdict.speedup is None


def test_a_default_that_the_card_cannot_run_is_left_out() -> None:
    result = search(SPACE, None, ScriptedMeasurer(), budget=Budget(trials=60))
    assert result.verdict is not None
    assert result.verdict.config == BEST


def test_configs_are_kept_on_their_way() -> None:
    measurer = ScriptedMeasurer(capacity=7)
    search(SPACE, DEFAULT, measurer, budget=Budget(trials=20))
    assert measurer.most_on_the_way == 7


def test_an_interrupted_search_keeps_what_it_found() -> None:
    measurer = ScriptedMeasurer()
    result = search(SPACE, DEFAULT, measurer, sampler="random", stop=lambda: measurer.measured >= 10)
    assert result.stopped == "interrupted"
    assert len(result.measurements) == 10
    assert result.verdict is None
    assert result.best is not None


def test_a_resumed_search_repeats_nothing() -> None:
    first = ScriptedMeasurer()
    known = search(SPACE, DEFAULT, first, budget=Budget(trials=50), stop=lambda: first.measured >= 37).measurements
    second = ScriptedMeasurer()
    result = search(SPACE, DEFAULT, second, budget=Budget(trials=50), known=known)
    assert len(known) == 37
    assert len(second.submitted) == 13
    assert not set(second.submitted) & {measurement.config for measurement in known}
    assert len(result.measurements) == 50


def test_measurements_outside_todays_choices_are_no_obstacle() -> None:
    narrow = [config for config in SPACE if config["B"] < 4]
    known = search(SPACE, DEFAULT, ScriptedMeasurer(), sampler="grid", budget=Budget(trials=20)).measurements
    result = search(narrow, DEFAULT, ScriptedMeasurer(), known=[m for m in known if m.config in set(narrow)])
    assert result.stopped == "exhausted"
    assert result.verdict is not None
    assert result.verdict.config == BEST


def test_before_a_search_is_sure_every_choice_of_a_knob_has_its_turn() -> None:
    """Else this one ends after 46 configs with 0.88 of the optimum, whose variant it never tried."""
    space = recorded.load("gemm-1024x6144x4096-bf16-nvidia-h200")
    configs = [measurement.config for measurement in space.measurements]
    result = search(
        configs, None, RecordedMeasurer(space), seed=4, budget=Budget(200, min_improvement_probability=0.05)
    )
    assert result.stopped == "converged"
    tried = [measurement.config for measurement in result.measurements]
    assert len(tried) < 120
    for knob in configs[0]:
        for choice in {config[knob] for config in configs}:
            assert sum(config[knob] == choice for config in tried) >= 3, (knob, choice)
    best = min(measurement.latency_us for measurement in space.measurements if measurement.ok)
    assert result.best is not None
    assert best / result.best.latency_us > 0.99


def test_a_time_budget_ends_a_search_that_gets_no_answers() -> None:
    measurer = ScriptedMeasurer()
    measurer.never_answers = True
    result = search(SPACE, None, measurer, budget=Budget(seconds=0.2))
    assert result.stopped == "budget"
    assert result.verdict is None
    assert result.seconds["measure"] < 1


def test_the_default_is_waited_for_when_time_is_up() -> None:
    """Compilers may end in any order. An answer that was never held against the default would be worth nothing."""

    class Late(ScriptedMeasurer):
        def next(self, timeout_s: float) -> Measurement | None:
            sleep(0.05)
            self._waiting.rotate(-1)  # the default comes last of those on their way
            return super().next(timeout_s)

    measurer = Late(capacity=16)
    result = search(SPACE, DEFAULT, measurer, budget=Budget(seconds=0.2))
    assert result.stopped == "budget"
    assert len(measurer.submitted) < 30
    assert result.verdict is not None
    assert result.verdict.default_latency_us is not None
    assert result.comparison is not None
    assert len(result.comparison.rounds) == 20


def test_when_time_is_up_the_duel_still_has_a_few_rounds() -> None:
    class Slow(ScriptedMeasurer):
        def compare(
            self, configs: Sequence[Config], rounds: int, seconds: float, seed: int
        ) -> Comparison | Measurement:
            return super().compare(configs, min(rounds, int(seconds / 0.05)), seconds, seed)

    result = search(SPACE, DEFAULT, Slow(), budget=Budget(seconds=0.01))
    assert result.verdict is not None
    assert result.verdict.rounds >= 8


def test_an_unresolved_duel_goes_on_and_stops() -> None:
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
def test_a_race_that_cannot_be_told_ends_after_a_while(elimination_s: float | None, fewest: int, most: int) -> None:
    """But has twenty rounds; and who does not race has all the rounds that may help."""

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


def test_a_duel_ends_with_the_rounds_that_there_are() -> None:
    """Of a recorded space 20, which do not tell its best apart."""
    space = recorded.load("softmax-8192x8192-fp32-nvidia-h200")
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


def test_guided_samplers_find_the_best_of_a_bowl_sooner_than_random() -> None:
    def steps(sampler: str, seed: int) -> int:
        measurer = ScriptedMeasurer(bowl, capacity=1)
        search(SPACE, None, measurer, sampler=sampler, seed=seed, stop=lambda: BEST in measurer.submitted)
        return measurer.submitted.index(BEST)

    gp, tpe, chance = (sum(steps(sampler, seed) for seed in range(8)) for sampler in ("gp", "tpe", "random"))
    assert tpe < 0.8 * chance
    assert gp < 0.5 * chance


def test_on_a_flat_top_two_runs_name_the_same() -> None:
    """300 configs within 1 % of the best: whoever is lucky in one measurement, the rule decides among them."""
    knobs = tuple(Knob(name, tuple(range(1, 1 + count))) for name, count in (("A", 10), ("B", 10), ("C", 4)))
    flat = Signature("flat", (Dim("N"),), ("fp32",), (*knobs, Knob("num_warps", (1,)), Knob("num_stages", (1,))))
    names = [knob.name for knob in flat.knobs]
    space = [flat.config(dict(zip(names, each, strict=True))) for each in product(*(k.choices for k in flat.knobs))]

    def latency_us(config: Config) -> float:
        """A quarter of them is far behind; the others lie within 0.5 % of each other."""
        return 150.0 if config["C"] == 4 else 100.0 + 0.05 * ((7 * config["A"] + 3 * config["B"]) % 10)

    def found(seed: int) -> Config:
        measurer = ScriptedMeasurer(latency_us, noise=0.003, seed=seed)
        result = search(space, None, measurer, seed=seed, sampler="random")
        assert result.stopped == "exhausted"
        assert result.verdict is not None
        assert len(result.verdict.ties) > 20
        return result.verdict.config

    winners = [found(seed) for seed in range(4)]
    assert len(set(winners)) == 1
    assert winners[0]["A"] == 1  # which takes the least shared memory here


def test_one_lucky_measurement_does_not_keep_the_others_out_of_the_duel() -> None:
    """Half of the space is within 10 % of the best. One of it reads 15 % less than it takes, but for the duel."""
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


def test_finalists_are_few_where_launches_are_long() -> None:
    def ranked(latency_us: float) -> list[Measurement]:
        return [Measurement(config, Outcome.OK, (latency_us + n / 100,) * 10) for n, config in enumerate(SPACE)]

    assert [len(close_to_best(ranked(latency_us))) for latency_us in (10.0, 1250.0, 2500.0, 1e5)] == [60, 50, 25, 8]
    assert close_to_best([]) == []


def test_what_a_config_lost_is_told_round_by_round_where_it_met_the_answer() -> None:
    """Read alone, everything but `BEST` takes a tenth longer than in rounds with others."""

    def alone(config: Config) -> float:
        return 1.0 if config == BEST else 1.1

    sent_home, far, gone = (
        TOY.config({**BEST, **change}) for change in ({"A": 16}, {"A": 1, "B": 1}, {"num_warps": 2})
    )
    scripted = {BEST: 100.0, sent_home: 104.0, far: 170.0}
    measurer = ScriptedMeasurer(
        lambda config: scripted.get(config, 150.0), noise=0.001, luck=alone, outcome=only(gone, Outcome.WRONG_RESULT)
    )
    result = search(SPACE, DEFAULT, measurer, winners=[far, gone], budget=Budget(trials=60), seed=3)
    assert measurer.submitted[:3] == [DEFAULT, far, gone]
    assert result.comparison is not None
    assert sent_home.text not in result.comparison.contenders
    assert result.slowdown(BEST) == 1.0
    assert result.slowdown(sent_home) == pytest.approx(1.04, abs=0.002)
    assert result.slowdown(far) == pytest.approx(1.7 * 1.1, abs=0.005)
    assert result.slowdown(gone) == float("inf")
    assert result.slowdown(TOY.config({**BEST, "A": 32})) is None


def test_a_config_that_spills_may_win() -> None:
    class Spilling(ScriptedMeasurer):
        def next(self, timeout_s: float) -> Measurement | None:
            measurement = super().next(timeout_s)
            return measurement and replace(measurement, spills=64 if measurement.config == BEST else 0)

    result = search(SPACE, DEFAULT, Spilling())
    assert result.verdict is not None
    assert result.verdict.config == BEST


def test_exceptions_that_nobody_foresaw_are_counted_by_type() -> None:
    measurements = (
        Measurement(BEST, Outcome.ERROR, stage="launch", error="ZeroDivisionError: division by zero"),
        Measurement(DEFAULT, Outcome.ERROR, stage="launch", error="ZeroDivisionError: a bug"),
        Measurement(SPACE[0], Outcome.ERROR, stage="time", error="triton.Oops"),
        Measurement(SPACE[1], Outcome.TIMEOUT, stage="launch", error="no end in sight"),
    )
    failures = Result(measurements, "trials").failures
    assert failures == {"error (ZeroDivisionError)": 2, "error (triton.Oops)": 1, "timeout": 1}


def test_the_first_look_sends_home_only_who_is_far_behind() -> None:
    """Those 1.5 % behind have twelve rounds more; nobody is checked again before they are over."""
    near, far = (TOY.config({**BEST, **change}) for change in ({"A": 16}, {"A": 1, "B": 1}))
    scripted = {BEST: 100.0, near: 101.5, far: 103.0}
    met: list[tuple[set[Config], int]] = []

    class Watched(ScriptedMeasurer):
        def compare(
            self, configs: Sequence[Config], rounds: int, seconds: float, seed: int
        ) -> Comparison | Measurement:
            met.append(({*configs}, rounds))
            return super().compare(configs, rounds, seconds, seed)

        def recheck(self, configs: Sequence[Config], seed: int) -> Sequence[Evidence | Measurement]:
            assert sum(rounds for _, rounds in met) == 20
            return super().recheck(configs, seed)

    measurer = Watched(lambda config: scripted.get(config, 150.0), noise=0.0001)
    result = search(SPACE, DEFAULT, measurer, winners=[BEST, near, far], budget=Budget(trials=60), seed=3)
    assert [({BEST, near, far} & configs, rounds) for configs, rounds in met] == [
        ({BEST, near, far}, 8),
        ({BEST, near}, 12),
    ]
    assert result.comparison is not None
    assert near.text not in result.comparison.contenders


@pytest.mark.parametrize(("trials", "blind"), [(60, 20), (200, 50), (None, 64)])
def test_compilers_run_ahead_while_another_search_has_the_device(trials: int | None, blind: int) -> None:
    """Until the first result: by a quarter of the trials, but by no fewer configs than usual, and no more than 64."""

    class InLine(ScriptedMeasurer):
        @property
        def waits_for_device(self) -> bool:
            return self.measured == 0

    knobs = (Knob("A", tuple(range(1, 401))), Knob("num_warps", (1,)), Knob("num_stages", (1,)))
    line = Signature("line", (Dim("N"),), ("fp32",), knobs)
    space = [line.config({"A": value, "num_warps": 1, "num_stages": 1}) for value in range(1, 401)]
    measurer = InLine(lambda config: 100.0 + config["A"], capacity=20)
    search(space, space[0], measurer, sampler="grid", budget=Budget(trials))
    assert measurer.most_on_the_way == blind
