"""Importance of knobs: the decisive knob comes first, and too little data is an error."""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from scripted import SPACE, bowl

from tuner.errors import NothingFound
from tuner.records import Measurement, Outcome
from tuner.report.importance import IMPORTANCE, importances


def test_the_knob_that_decides_comes_first_and_one_that_never_changed_is_left_out() -> None:
    noise = random.Random(0)
    shares = importances(
        Measurement(config, Outcome.OK, (noise.gauss(100 if config["A"] == 8 else 150, 1),)) for config in SPACE
    )
    assert next(iter(shares)) == "A"
    assert shares["A"] > 0.5
    assert shares.keys() == {"A", "B", "num_warps"}  # num_stages is always 1
    assert sum(shares.values()) == pytest.approx(1)
    assert list(shares.values()) == sorted(shares.values(), reverse=True)


def test_failed_configs_are_not_counted() -> None:
    ran = [Measurement(config, Outcome.OK, (bowl(config),)) for config in SPACE[: IMPORTANCE.min_configs]]
    failed = replace(ran[0], outcome=Outcome.CRASHED, samples=())
    assert importances([*ran, failed]) == importances(ran)
    with pytest.raises(NothingFound, match="needs 20 configs that ran, and 19 did; search with more trials"):
        importances([*ran[1:], failed])


def test_no_knob_with_two_values_is_an_error() -> None:
    same = [Measurement(SPACE[0], Outcome.OK, (10.0,))] * IMPORTANCE.min_configs
    with pytest.raises(NothingFound, match="and each knob has one"):
        importances(same)


def test_it_needs_no_package_but_optuna() -> None:
    """Optuna's fANOVA would need scikit-learn, which the search extra does not install."""
    story = """
import sys
sys.modules |= dict.fromkeys(("sklearn", "scipy", "pandas", "torch", "plotly", "matplotlib"))
from scripted import SPACE, bowl
from tuner.report.importance import importances
from tuner.records import Measurement, Outcome
assert importances(Measurement(config, Outcome.OK, (bowl(config),)) for config in SPACE)
"""
    tests = str(Path(__file__).parents[1])
    story = f"import sys; sys.path.insert(0, {tests!r})\n{story}"
    subprocess.run([sys.executable, "-P", "-W", "error", "-c", story], check=True)
