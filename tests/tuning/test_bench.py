"""An answer beside its rivals: rows from scripted duels, and what a suite of them comes to."""

from __future__ import annotations

import json
from dataclasses import replace
from math import isclose

import pytest
from helpers import H200
from scripted import BEST, DEFAULT, TOY, ScriptedMeasurer, bowl, only

from tuner.records import COLD, Environment, Outcome, Provenance, RooflineLimits
from tuner.tuning.bench import Subject, bench, still_stands
from tuner.tuning.bench_row import Rival, Row

PROBLEM = TOY.problem({"N": 64})
CEILINGS = RooflineLimits(1000.0, {"fp32": 50.0}, {})
SUBJECT = Subject(
    PROBLEM,
    Provenance(H200, Environment("3.6.0", "12.8", "2.11.0", "580.1"), "9f2c", COLD.text, tuner="0.1.0"),
    answer=BEST,
    default=DEFAULT,
    flops=1_000_000_000,
    bytes=80_000_000,
    roofline_limits=CEILINGS,
)


def benched(subject: Subject = SUBJECT, measurer: ScriptedMeasurer | None = None) -> Row:
    row = bench(subject, measurer or ScriptedMeasurer())
    assert row is not None
    return row


def test_an_answer_meets_the_default_and_the_vendor() -> None:
    row = benched()
    assert (row.kind, row.config, row.latency_us, row.interval_us) == ("tuned", dict(BEST), 100.0, (100.0, 100.0))
    assert row.vendor is not None
    assert row.vendor.latency_us == 120.0
    assert isclose(row.vendor.speedup, 1.2)
    assert row.default is not None
    assert isclose(row.default.speedup, bowl(DEFAULT) / 100)
    assert row.tflops == 10.0
    assert row.gb_per_s == 800.0
    assert row.share == 0.8  # 80 us of memory, 20 us of arithmetic
    assert row.rounds == 20


def test_what_is_untuned_is_the_default() -> None:
    row = benched(replace(SUBJECT, answer=None))
    assert (row.kind, row.config) == ("untuned", dict(DEFAULT))
    assert row.default == Rival(bowl(DEFAULT), 1.0, (1.0, 1.0))


def test_a_default_that_a_search_found_best_meets_the_vendor_alone() -> None:
    measurer = ScriptedMeasurer()
    assert benched(replace(SUBJECT, answer=DEFAULT), measurer).kind == "default"
    assert measurer.submitted == [DEFAULT]


def test_rounds_go_on_until_the_ratios_are_known() -> None:
    quiet, noisy = (benched(measurer=ScriptedMeasurer(noise=noise, seed=1)) for noise in (0.002, 0.015))
    assert quiet.rounds == 20
    assert 20 < noisy.rounds < 200
    for row in (quiet, noisy):
        assert row.vendor is not None
        low, high = row.vendor.speedup_interval
        assert low < 1.2 < high < 1.01 * low


def test_a_config_that_is_wrong_is_a_failed_row() -> None:
    row = benched(measurer=ScriptedMeasurer(outcome=only(BEST, Outcome.WRONG_RESULT)))
    assert (row.kind, row.error, row.tflops, row.share) == ("failed", "wrong_result: as scripted", None, None)
    assert benched(measurer=ScriptedMeasurer(fails_in_comparison=[BEST])).error == "crashed: as scripted"


def test_a_default_that_fails_is_left_out() -> None:
    row = benched(measurer=ScriptedMeasurer(outcome=only(DEFAULT, Outcome.OUT_OF_MEMORY)))
    assert row.ok
    assert row.default is None


def test_where_nothing_can_run_the_row_says_so() -> None:
    row = benched(replace(SUBJECT, answer=None, default=None, refused="BLOCK=64 is refused by valid"))
    assert row.error == "nothing is tuned, and the default is not feasible here: BLOCK=64 is refused by valid"


def test_a_default_that_is_not_feasible_or_fails_is_named_with_its_reason() -> None:
    refused = benched(replace(SUBJECT, default=None, refused="BLOCK=64 is refused by valid"))
    assert refused.ok
    assert refused.default_failure == "infeasible: BLOCK=64 is refused by valid"
    failed = benched(measurer=ScriptedMeasurer(outcome=only(DEFAULT, Outcome.WRONG_RESULT)))
    assert failed.default_failure.startswith("wrong_result: ")
    assert Row.from_json(failed.problem, failed.as_json()).default_failure == failed.default_failure


def test_it_can_be_stopped() -> None:
    assert bench(SUBJECT, ScriptedMeasurer(), stop=lambda: True) is None


@pytest.mark.parametrize("subject", [SUBJECT, replace(SUBJECT, roofline_limits=None), replace(SUBJECT, default=None)])
def test_a_row_comes_back_from_json(subject: Subject) -> None:
    row = benched(subject, ScriptedMeasurer(noise=0.01))
    document = json.loads(json.dumps(row.as_json()))
    assert Row.from_json(PROBLEM, document) == row
    assert still_stands(row, subject)


def test_a_kept_row_stands_while_it_would_be_measured_alike() -> None:
    row = benched()
    other = replace(SUBJECT.provenance, environment=Environment("3.7.1", "12.8", "2.11.0", "580.1"))
    assert still_stands(row, replace(SUBJECT, provenance=replace(SUBJECT.provenance, tuner="0.2.0")))
    assert not still_stands(row, replace(SUBJECT, provenance=other))
    assert not still_stands(row, replace(SUBJECT, answer=None))
    assert not still_stands(row, replace(SUBJECT, problem=TOY.problem({"N": 65})))
    assert not still_stands(benched(measurer=ScriptedMeasurer(fails_in_comparison=[BEST])), SUBJECT)
