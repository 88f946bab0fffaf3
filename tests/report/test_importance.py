"""What mattered: the knob that decides comes first, and what cannot be told is said."""

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
from tuner.report.importance import FEWEST, importances


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


def test_what_failed_is_not_counted() -> None:
    ran = [Measurement(config, Outcome.OK, (bowl(config),)) for config in SPACE[:FEWEST]]
    failed = replace(ran[0], outcome=Outcome.CRASHED, samples=())
    assert importances([*ran, failed]) == importances(ran)
    with pytest.raises(NothingFound, match="told from 20 configs that ran right or more, and 19 did"):
        importances([*ran[1:], failed])


def test_where_no_knob_changed_none_mattered() -> None:
    same = [Measurement(SPACE[0], Outcome.OK, (10.0,))] * FEWEST
    with pytest.raises(NothingFound, match="no knob took a second value"):
        importances(same)


def test_it_needs_nothing_but_optuna() -> None:
    """Optuna's fANOVA would need scikit-learn, which the search extra does not bring."""
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
