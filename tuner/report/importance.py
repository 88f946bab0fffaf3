"""Which knobs decide whether a config is among the fast ones, as Optuna tells it from what was measured."""

from __future__ import annotations

from collections.abc import Iterable
from math import log

import optuna
from optuna.distributions import CategoricalDistribution
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.trial import create_trial

from tuner.errors import NothingFound
from tuner.records import Measurement

FEWEST = 20
"""Measured configs: with fewer, not even two are in the fastest tenth that is compared with all."""


def importances(measurements: Iterable[Measurement]) -> dict[str, float]:
    """Every knob's share of what makes a config one of the fastest tenth, the largest first; they sum to one.

    By PED-ANOVA (Watanabe et al., "PED-ANOVA", IJCAI 2023), over the configs that ran right. A knob that never took a
    second value is left out.

    Raises:
        NothingFound: too few ran right to tell, or no knob took a second value.
    """
    ran = [measurement for measurement in measurements if measurement.ok]
    if len(ran) < FEWEST:
        raise NothingFound(f"what mattered is told from {FEWEST} configs that ran right or more, and {len(ran)} did")
    values = {name: tuple(dict.fromkeys(m.config[name] for m in ran)) for name in ran[0].config}
    knobs = {name: CategoricalDistribution(choices) for name, choices in values.items() if len(choices) > 1}
    if not knobs:
        raise NothingFound("no knob took a second value, so none can have mattered")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study()
    for measurement in ran:
        params = {name: measurement.config[name] for name in knobs}
        study.add_trial(create_trial(params=params, distributions={**knobs}, value=log(measurement.latency_us)))
    return get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
