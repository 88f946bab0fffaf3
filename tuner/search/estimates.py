"""Estimates of all configs' latencies, as far as they prove right on a problem.

A kernel's estimate orders configs well and errs by some per cent on each. Its logarithm is the mean of the Gaussian
process, with a weight and an offset that are learnt from the results. What is estimated to be far slower than the
fastest is tried last, unless results contradict the estimates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import numpy as np

from tuner.search.covariance import Floats, Indices
from tuner.search.points import Flags
from tuner.search.posterior import Posterior


@dataclass(frozen=True)
class EstimatesSettings:
    """Limits of the trust in estimates."""

    weight: float = 1.0
    """Expected weight."""
    deviation: float = 0.5
    """Standard deviation of that expectation."""
    most_weight: float = 2.0
    """Largest weight; the least is 0."""
    promising: int = 8
    """One config in this many is promising: those with the least estimates."""
    unlike: float = 0.15
    """Estimated slowdown, as a log latency, at which a config unlike all others is tried as soon as one like them."""
    far_every: int = 4
    """Period, in configs before the first results, of those that are far from all others, whatever their estimate."""
    far_slower: float = 1.5
    """Estimate over the least one from which a config is put off."""
    least_correlation: float = 0.2
    """Correlation of estimates and results from which estimates prove right."""
    judged_results: int = 16
    """Number of results from which that is judged."""


ESTIMATES = EstimatesSettings()


class Estimates:
    """Estimates of the configs of a space, which are named by their index.

    Args:
        log_latencies: estimated log latency of each config.
        free: whether each config was not tried yet.
        settings: how far they are trusted.
    """

    def __init__(self, log_latencies: Floats, free: Flags, settings: EstimatesSettings = ESTIMATES) -> None:
        self._values, self._settings = np.asarray(log_latencies, np.float64), settings
        self._weight, self._offset = settings.weight, 0.0
        self._middle, self._spread = 0.0, 1.0
        slow = self._values > self._values.min() + log(settings.far_slower)
        self.put_off: Indices = np.flatnonzero(slow & free)
        """Untried configs that are tried after all others."""

    def promising(self, configs: Indices, count: int | None = None) -> Indices:
        """Return those of some configs that have the least estimates, the least first; None is the usual number."""
        count = -(-len(configs) // self._settings.promising) if count is None else count
        return np.asarray(configs[np.argsort(self._values[configs], kind="stable")[:count]])

    def next(self, configs: Indices, covariances: Floats) -> int:
        """Return the config to try before there are results: of a small estimate, and unlike those that were tried.

        Args:
            configs: the free ones.
            covariances: the largest of each with a config that was tried, at most 1.
        """
        return int(configs[np.argmin(self._values[configs] + self._settings.unlike * covariances)])

    def is_far(self, count: int) -> bool:
        """Return whether the config after `count` others is one far from them."""
        return count % self._settings.far_every == self._settings.far_every - 1

    def take(self, config: int) -> None:
        """Note that a config is tried."""
        if len(self.put_off):
            self.put_off = self.put_off[self.put_off != config]

    def released(self) -> Indices:
        """Return the configs that were put off, which no longer are."""
        put_off, self.put_off = self.put_off, self.put_off[:0]
        return put_off

    def standardise(self, known: Indices, spread: float) -> None:
        """Set the scale of `expected`: the mean over the known configs, and the spread of their results."""
        self._middle, self._spread = float(self._values[known].mean()), spread

    def weigh(self, posterior: Posterior, known: Sequence[int], values: Floats) -> None:
        """Learn the weight from the standardised results of the known configs, NaN while they run."""
        settings = self._settings
        weight, self._offset = posterior.line(values, self._standard(known), settings.weight, settings.deviation)
        self._weight = min(max(weight, 0.0), settings.most_weight)

    def are_wrong(self, known: Sequence[int], values: Floats) -> bool:
        """Return whether results do not rise with the estimates."""
        ended = ~np.isnan(values)
        if np.count_nonzero(ended) < self._settings.judged_results:
            return False
        x, y = self._standard(known)[ended], values[ended]
        least = self._settings.least_correlation * x.std() * y.std() * len(x)
        return bool((x - x.mean()) @ (y - y.mean()) < least)

    def expected(self, configs: Sequence[int] | Indices) -> Floats:
        """Return the standardised results that are expected of configs."""
        return self._weight * self._standard(configs) + self._offset

    def _standard(self, configs: Sequence[int] | Indices) -> Floats:
        return np.asarray((self._values[np.asarray(configs)] - self._middle) / self._spread)
