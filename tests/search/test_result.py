"""The result of a search: failures and slowdowns."""

from __future__ import annotations

import pytest
from scripted import BEST, DEFAULT, SPACE, TOY, ScriptedMeasurer, only

from tuner.kernels.spec import Config
from tuner.records import Measurement, Outcome
from tuner.search import Budget, Result, search


def test_a_slowdown_is_by_common_rounds_if_there_are_any() -> None:
    """Measured alone, all but `BEST` take a tenth longer than in the comparison's rounds."""

    def alone(config: Config) -> float:
        return 1.0 if config == BEST else 1.1

    eliminated, far, failing = (
        TOY.config({**BEST, **change}) for change in ({"A": 16}, {"A": 1, "B": 1}, {"num_warps": 2})
    )
    scripted = {BEST: 100.0, eliminated: 104.0, far: 170.0}
    measurer = ScriptedMeasurer(
        lambda config: scripted.get(config, 150.0), noise=0.001, luck=alone, outcome=only(failing, Outcome.WRONG_RESULT)
    )
    result = search(SPACE, DEFAULT, measurer, winners=[far, failing], budget=Budget(trials=60), seed=3)
    assert measurer.submitted[:3] == [DEFAULT, far, failing]
    assert result.comparison is not None
    assert eliminated.text not in result.comparison.contenders
    assert result.slowdown(BEST) == 1.0
    assert result.slowdown(eliminated) == pytest.approx(1.04, abs=0.002)
    assert result.slowdown(far) == pytest.approx(1.7 * 1.1, abs=0.005)
    assert result.slowdown(failing) == float("inf")
    assert result.slowdown(TOY.config({**BEST, "A": 32})) is None


def test_unexpected_exceptions_are_counted_by_type() -> None:
    measurements = (
        Measurement(BEST, Outcome.ERROR, stage="launch", error="ZeroDivisionError: division by zero"),
        Measurement(DEFAULT, Outcome.ERROR, stage="launch", error="ZeroDivisionError: a bug"),
        Measurement(SPACE[0], Outcome.ERROR, stage="time", error="triton.Oops"),
        Measurement(SPACE[1], Outcome.TIMEOUT, stage="launch", error="no end in sight"),
    )
    failures = Result(measurements, "trials").failures
    assert failures == {"error (ZeroDivisionError)": 2, "error (triton.Oops)": 1, "timeout": 1}
