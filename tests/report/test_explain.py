"""The explanation of an answer from stored values, with counts that add up."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers import H200
from scripted import BEST, DEFAULT, SPACE, TOY, bowl

from tuner.kernels.spec import Config
from tuner.records import (
    VENDOR,
    Answer,
    CardState,
    Comparison,
    Environment,
    Measurement,
    Outcome,
    Provenance,
    RooflineLimits,
    StoredAnswer,
    StoredRun,
    Tie,
)
from tuner.report.explain import explain
from tuner.report.explanation import Candidates, CardRange, Explanation, Failure, Roofline
from tuner.report.occupancy import Occupancy

PROBLEM = TOY.problem({"N": 4096})
TIED, BEATEN = SPACE[7], SPACE[11]
PROVENANCE = Provenance(H200, Environment("3.6.0"), "9f2c", "cold-events-1")
ANSWER = Answer(
    problem=PROBLEM,
    kind="tuned",
    config=BEST,
    latency_us=100.0,
    interval_us=(100.0, 100.0),
    speedup=1.25,
    speedup_interval=(1.25, 1.25),
    default_latency_us=125.0,
    vendor_latency_us=95.0,
    ties=(Tie(TIED, 0.998, (0.998, 0.998)),),
    flops=2_000_000_000,
    bytes=100_000_000,
)
SETTINGS = {"trials": 40, "space": len(SPACE), "known": 0, "default": DEFAULT.text}
LATENCIES = {TIED: 99.8, BEST: 100.0, BEATEN: 104.0, DEFAULT: 125.0}
COMPARISON = Comparison((*(config.text for config in LATENCIES), VENDOR), (((*LATENCIES.values(), 95.0)),) * 20)


def ok(config: Config, samples: int = 12) -> Measurement:
    return Measurement(config, Outcome.OK, (bowl(config),) * samples, registers=168, spills=0, shared_bytes=65_536)


def failed(config: Config, outcome: Outcome, error: str) -> Measurement:
    return Measurement(config, outcome, stage="compile", error=error)


OTHERS = [config for config in SPACE if config not in LATENCIES]
MEASURED = [
    *map(ok, LATENCIES),
    *map(ok, OTHERS[:10]),
    *(ok(config, samples=3) for config in OTHERS[10:17]),
    failed(OTHERS[17], Outcome.TIMEOUT, "took longer than 10 s"),
    failed(OTHERS[18], Outcome.COMPILE_ERROR, "first"),
    failed(OTHERS[19], Outcome.COMPILE_ERROR, "second"),
]
RUN = StoredRun(
    7, TOY, PROBLEM, PROVENANCE, SETTINGS, "done", "trials", {"comparison": 4.0}, "", "", trials=len(MEASURED)
)


def report(
    *,
    answer: Answer = ANSWER,
    run: StoredRun = RUN,
    comparison: Comparison | None = COMPARISON,
    measurements: list[Measurement] = MEASURED,
    roofline_limits: RooflineLimits | None = None,
) -> Explanation:
    return explain(StoredAnswer(3, answer, PROVENANCE, "", run.id), run, comparison, measurements, roofline_limits)


def add_up(candidates: Candidates) -> bool:
    heads = (candidates.comparison, candidates.slower, candidates.beaten, candidates.failed, candidates.not_tried or 0)
    return sum(heads) == (candidates.space or 0) + candidates.outside


class TestContenders:
    def test_contenders_come_fastest_first_with_their_roles(self) -> None:
        ladder = report().ladder
        assert [(contender.name, contender.roles) for contender in ladder] == [
            (VENDOR, ("vendor",)),
            (TIED.text, ("tie",)),
            (BEST.text, ("answer",)),
            (BEATEN.text, ("beaten",)),
            (DEFAULT.text, ("default",)),
        ]
        assert [contender.latency_us for contender in ladder] == [95.0, 99.8, 100.0, 104.0, 125.0]
        assert ladder[3].interval_us == (104.0, 104.0)

    def test_speed_ups_are_those_of_the_answer_within_rounds(self) -> None:
        drifting = Comparison(
            COMPARISON.contenders, tuple(tuple(us * drift for us in COMPARISON.rounds[0]) for drift in range(1, 21))
        )
        (default,) = (c for c in report(comparison=drifting).ladder if "default" in c.roles)
        assert default.interval_us[0] < default.latency_us < default.interval_us[1]
        assert default.speedup == pytest.approx(1.25)
        assert default.speedup_interval == pytest.approx((1.25, 1.25))

    def test_a_default_that_is_the_answer_is_both(self) -> None:
        kept = replace(ANSWER, kind="default", config=DEFAULT, ties=())
        (both,) = (c for c in report(answer=kept).ladder if "answer" in c.roles)
        assert both.roles == ("answer", "default")
        assert report(answer=kept).chosen == "nothing beats the default by more than 1 % with confidence"

    def test_the_default_of_an_older_run_is_known_by_its_latency(self) -> None:
        older = replace(RUN, settings={"space": len(SPACE)})
        (default,) = (c for c in report(run=older).ladder if "default" in c.roles)
        assert default.name == DEFAULT.text

    def test_no_contender_is_the_default_if_it_does_not_run(self) -> None:
        without = replace(RUN, settings=SETTINGS | {"default": None})
        assert not [c for c in report(run=without).ladder if "default" in c.roles]

    def test_the_rule_that_chose_the_answer_is_named(self) -> None:
        assert report().chosen == "the least shared memory of all that are within 1 % of the fastest config"
        fastest = replace(ANSWER, config=TIED, ties=())
        assert report(answer=fastest).chosen == "the fastest config"

    def test_a_contender_has_its_compiler_report_and_occupancy(self) -> None:
        answer = report().ladder[2]
        assert answer.measurement is not None
        assert (answer.measurement.registers, answer.measurement.shared_bytes) == (168, 65_536)
        # 4 warps; 12 by registers: three blocks; 228 KB over 65: three blocks
        assert answer.occupancy == Occupancy(3, 12, 64, ("registers", "shared"))
        assert report().ladder[0].occupancy is None

    def test_without_rounds_there_are_no_contenders(self) -> None:
        assert report(comparison=None).ladder == ()


class TestCandidates:
    def test_each_config_is_counted_once(self) -> None:
        candidates = report().candidates
        assert candidates == Candidates(
            space=60,
            comparison=4,
            slower=10,
            beaten=7,
            failures=(
                Failure("compile_error", 2, "compile", "first", OTHERS[18]),
                Failure("timeout", 1, "compile", "took longer than 10 s", OTHERS[17]),
            ),
            not_tried=36,
            outside=0,
        )
        assert add_up(candidates)

    def test_configs_of_earlier_runs_count(self) -> None:
        candidates = report(run=replace(RUN, trials=10, settings=SETTINGS | {"known": 14})).candidates
        assert (candidates.not_tried, candidates.outside) == (36, 0)
        assert add_up(candidates)

    def test_a_known_config_that_this_run_measured_again_counts_once(self) -> None:
        """Among the known ones and among its own trials."""
        candidates = report(run=replace(RUN, trials=11, settings=SETTINGS | {"known": 14})).candidates
        assert (candidates.not_tried, candidates.outside) == (36, 0)
        assert add_up(candidates)

    def test_configs_of_earlier_runs_outside_the_space_are_counted_apart(self) -> None:
        candidates = report(run=replace(RUN, trials=10, settings=SETTINGS | {"known": 9})).candidates
        assert (candidates.not_tried, candidates.outside) == (41, 5)
        assert add_up(candidates)

    def test_untried_configs_are_unknown_without_the_size_of_the_space(self) -> None:
        candidates = report(run=replace(RUN, settings={})).candidates
        assert (candidates.space, candidates.not_tried, candidates.slower) == (None, None, 10)


class TestRoofline:
    LIMITS = RooflineLimits(4000.0, {"fp32": 25.0}, {})

    def test_compute_bound(self) -> None:
        # 2e9 flops at 25 TFLOP/s take 80 us, 1e8 bytes at 4000 GB/s 25 us
        assert report(roofline_limits=self.LIMITS).roofline == Roofline(80.0, 0.8, "compute")

    def test_memory_bound(self) -> None:
        assert report(roofline_limits=self.LIMITS, answer=replace(ANSWER, flops=0)).roofline == Roofline(
            25, 0.25, "memory"
        )

    def test_a_dtype_without_a_matmul_rate_is_named(self) -> None:
        found = report(roofline_limits=replace(self.LIMITS, tflops={})).roofline
        assert found == Roofline(25.0, 0.25, "memory", "the card's fp32 matmul")

    def test_without_roofline_limits_there_is_no_roofline(self) -> None:
        assert report().roofline is None


class TestCard:
    def test_it_is_the_range_over_the_rounds(self) -> None:
        states = (
            CardState(1755, 3201, 41, 590.5, ("power_cap",)),
            CardState(1740, None, 55, None, (), (4711,)),
            CardState(),
        )
        watched = replace(COMPARISON, states=states)
        assert report(comparison=watched).card == CardRange(3, (1740, 1755), 55, 590.5, ("power_cap",), ("contended",))

    def test_an_unknown_state_stays_unknown(self) -> None:
        watched = replace(COMPARISON, states=(CardState(),))
        assert report(comparison=watched).card == CardRange(1, None, None, None, (), ())

    def test_without_states_there_is_no_card(self) -> None:
        assert report().card is None


def test_json_has_all_fields() -> None:
    found = report(roofline_limits=TestRoofline.LIMITS).as_json()
    assert found.keys() == {
        "run", "rounds", "chosen", "ladder", "candidates", "importance", "importance_missing", "roofline", "seconds",
        "card", "outlook",
    }  # fmt: skip
    assert found["ladder"][0].keys() == {
        "config", "name", "roles", "latency_us", "interval_us", "speedup", "speedup_interval", "registers", "spills",
        "shared_bytes", "occupancy",
    }  # fmt: skip
    assert found["ladder"][0]["config"] is None
    assert found["ladder"][2]["occupancy"]["share"] == 12 / 64
    assert found["roofline"] == {"floor_us": 80.0, "share": 0.8, "bound": "compute", "missing": None}
    assert found["seconds"] == {"comparison": 4.0}
    assert found["candidates"]["failed"] == 3
