"""The importance of each knob for being among the fastest configs, from measurements, by Optuna."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import log

import optuna
from optuna.distributions import CategoricalDistribution
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.trial import create_trial

from tuner.errors import NothingFound
from tuner.records import Measurement


@dataclass(frozen=True)
class ImportanceSettings:
    """Limits of `importances`."""

    min_configs: int = 20
    """Minimum number of configs that ran, which puts two in the fastest tenth."""


IMPORTANCE = ImportanceSettings()


def importances(measurements: Iterable[Measurement]) -> dict[str, float]:
    """Return each knob's share in what makes a config one of the fastest tenth, largest first. Shares sum to 1.

    The method is PED-ANOVA (Watanabe et al., "PED-ANOVA", IJCAI 2023) over the configs that ran. A knob with one value
    is left out.

    Raises:
        NothingFound: too few configs ran, or no knob has a second value.
    """
    ran = [measurement for measurement in measurements if measurement.ok]
    if len(ran) < IMPORTANCE.min_configs:
        raise NothingFound(
            f"importance needs {IMPORTANCE.min_configs} configs that ran, and {len(ran)} did; search with more trials"
        )
    values = {name: tuple(dict.fromkeys(m.config[name] for m in ran)) for name in ran[0].config}
    knobs = {name: CategoricalDistribution(choices) for name, choices in values.items() if len(choices) > 1}
    if not knobs:
        raise NothingFound("importance needs a knob with two values, and each knob has one")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study()
    for measurement in ran:
        params = {name: measurement.config[name] for name in knobs}
        study.add_trial(create_trial(params=params, distributions={**knobs}, value=log(measurement.latency_us)))
    return get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
