"""Importance of knobs: the decisive knob comes first, and too little data is an error."""

from __future__ import annotations

import random
from dataclasses import replace

import optuna
import pytest
from optuna.distributions import CategoricalDistribution
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.trial import create_trial
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


@pytest.mark.parametrize("seed", range(4))
def test_the_shares_are_those_of_optuna(seed: int) -> None:
    drawn = random.Random(seed)
    several = drawn.choices(SPACE, k=90)  # some configs come twice, and some latencies tie
    measurements = [
        Measurement(config, Outcome.OK, (round(bowl(config) * drawn.choice((1, 1.2)), 1),)) for config in several
    ]
    study = optuna.create_study()
    values = {name: tuple(dict.fromkeys(m.config[name] for m in measurements)) for name in several[0]}
    knobs = {name: CategoricalDistribution(choices) for name, choices in values.items() if len(choices) > 1}
    for each in measurements:
        params = {name: each.config[name] for name in knobs}
        study.add_trial(create_trial(params=params, distributions={**knobs}, value=each.latency_us))
    expected = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
    assert importances(measurements) == pytest.approx(expected, abs=1e-12)
