"""The importance of each knob for being among the fastest configs, from measurements.

The method is PED-ANOVA (Watanabe et al., "PED-ANOVA: Efficiently Quantifying Hyperparameter Importance in Arbitrary
Subspaces", IJCAI 2023) for categorical parameters, with the estimator of Optuna's `PedAnovaImportanceEvaluator`. The
shares are the same; the service shows them without the extra `search`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil

from tuner.errors import NothingFound
from tuner.kernels.spec import Value
from tuner.records import Measurement


@dataclass(frozen=True)
class ImportanceSettings:
    """Limits of `importances`."""

    min_configs: int = 20
    """Minimum number of configs that ran, which puts two in the fastest tenth."""
    fastest: float = 0.1
    """Share of the configs that count as the fastest."""


IMPORTANCE = ImportanceSettings()
_FLOOR = 1e-12
"""Added to each density, as Optuna does, so that none is 0."""


def importances(measurements: Iterable[Measurement]) -> dict[str, float]:
    """Return each knob's share in what makes a config one of the fastest tenth, largest first. Shares sum to 1.

    A knob's divergence compares its values among the fastest tenth of the configs that ran with those among all of
    them. A knob with one value is left out.

    Raises:
        NothingFound: too few configs ran, or no knob has a second value.
    """
    ran = [measurement for measurement in measurements if measurement.ok]
    if len(ran) < IMPORTANCE.min_configs:
        raise NothingFound(
            f"importance needs {IMPORTANCE.min_configs} configs that ran, and {len(ran)} did; search with more trials"
        )
    latencies = sorted(measurement.latency_us for measurement in ran)
    limit_us = latencies[ceil(IMPORTANCE.fastest * len(ran)) - 1]
    fastest = [measurement for measurement in ran if measurement.latency_us <= limit_us]
    divergences = dict[str, float]()
    for name in ran[0].config:
        choices = tuple(dict.fromkeys(measurement.config[name] for measurement in ran))
        if len(choices) > 1:
            densities = (_density([each.config[name] for each in some], choices) for some in (fastest, ran))
            divergences[name] = _divergence(*densities)
    if not divergences:
        raise NothingFound("importance needs a knob with two values, and each knob has one")
    total = sum(divergences.values())
    shares = {name: value / total if total else 1 / len(divergences) for name, value in divergences.items()}
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def _density(values: Sequence[Value], choices: Sequence[Value]) -> list[float]:
    """Return the probability of each choice by a Parzen estimator with one kernel for each choice that occurs.

    A uniform prior counts as one further value.
    """
    counts = Counter(values)
    kernels = len(counts) + 1
    smooth = 1 / kernels
    whole = 1 + len(choices) * smooth
    spread = (len(values) * smooth / whole + 1 / len(choices)) / (len(values) + 1)
    return [counts[choice] / whole / (len(values) + 1) + spread + _FLOOR for choice in choices]


def _divergence(top: Sequence[float], every: Sequence[float]) -> float:
    """Return the Pearson divergence of two densities."""
    return sum(local * (density / local - 1) ** 2 for density, local in zip(top, every, strict=True))
