"""A Gaussian process of log latency over the feasible configs, with numpy alone.

All candidates are known beforehand, so that learning one more config adds one row to a matrix over the candidates. A
running config reduces the variance of its neighbourhood before its latency is known, which spreads a batch (Desautels
et al., "Parallelizing Exploration-Exploitation Tradeoffs in Gaussian Process Bandit Optimization", JMLR 2014). Work and
memory are bounded for any number of trials.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import erf, sqrt

import numpy as np

from tuner.kernels.spec import Value
from tuner.measure.cores import ONE_THREAD
from tuner.search.convergence import CONVERGENCE, Convergence, ConvergenceSettings
from tuner.search.covariance import COVARIANCE, Covariance, Floats, Indices, covariances, fitted
from tuner.search.estimates import ESTIMATES, Estimates, EstimatesSettings
from tuner.search.points import Flags, Points
from tuner.search.posterior import Posterior


@dataclass(frozen=True)
class GaussianProcessSettings:
    """Limits of the model. docs/studies/samplers.md has their measurements."""

    min_results: int = 2
    """Number of results before the model proposes; until then configs are taken far apart."""
    spread_sample: int = 4096
    """Number of random configs among which the farthest is taken; at most half of the free ones, as seeds differ."""
    exploration: float = 1.5
    """Number of standard deviations that are subtracted from a candidate's mean latency."""
    close_look_every: int = 3
    """Period, in results, of proposals by the log of the distance to the best, which separates the fastest configs."""
    close_look_quantile: float = 0.3
    """Quantile of the distances to the best that is added to each before the logarithm."""
    min_distance: float = 1e-3
    """Distance to the best, in log latency, that is added to each before the logarithm."""
    min_per_choice: int = 3
    """Number of times that each choice of a knob is taken before the improvement probability may be below 1."""
    max_choices: int = 16
    """Largest number of choices of a knob for which this holds."""
    early: float = 2.0
    """Multiple of the minimum improvement probability below which neglected choices are taken."""
    failed_quantile: float = 0.9
    """Quantile of the results that a failed config counts as."""
    refit_growth: float = 0.25
    """Number of new configs between two fits, as a share of the known ones."""
    min_new: int = 4
    """Minimum number of new configs between two fits."""
    max_new: int = 64
    """Maximum number of new configs between two fits."""
    max_known: int = 192
    """Number of results in a fit; of more, half are the fastest and half are random, and the weights stay."""
    batch: int = 16
    """Number of proposals made at once from then on."""
    max_cells: int = 300_000
    """Maximum size of the matrix of known configs by candidates; it limits the candidates."""
    min_candidates: int = 1000
    """Minimum number of candidates, if that many are free."""
    max_chunk: int = 4096
    """Number of configs that are predicted at a time when those that are no candidates are looked at."""
    leaders: int = 3
    """Number of fastest configs whose neighbours, which differ in one knob, are always candidates."""


GAUSSIAN_PROCESS = GaussianProcessSettings()


class GaussianProcess:
    """Learns which configs of a space are fast, and proposes the one to try next. Configs are named by their index.

    Args:
        knobs: for each knob, its value in each config. Numbers are ordered; bools, strings and None are not.
        seed: two models with the same seed and the same results propose the same configs.
        min_improvement_probability: limit below which the caller stops; neglected choices are tried before.
        settings: limits of the model.
        convergence: limits of the improvement probability.
        estimates: returns the estimated log latency of each config; called once, for the first proposal. None: nothing
            is known about the configs.
        trust: how far the estimates are trusted.
    """

    def __init__(
        self,
        knobs: Iterable[Sequence[Value]],
        seed: int,
        min_improvement_probability: float = 0.0,
        settings: GaussianProcessSettings = GAUSSIAN_PROCESS,
        convergence: ConvergenceSettings = CONVERGENCE,
        estimates: Callable[[], Floats] | None = None,
        trust: EstimatesSettings = ESTIMATES,
    ) -> None:
        self._points = Points(knobs)
        self._estimates_of, self._trust = estimates, trust
        self._estimates: Estimates | None = None
        """None without estimates, and before the first proposal."""
        self._prior = Covariance(self._points.log_weights, COVARIANCE.log_noise)
        self._covariance = self._prior
        self._random = np.random.default_rng(seed)
        self._settings = settings
        self._results: dict[int, float] = {}
        """Log latency by config, infinite if it failed."""
        self._running: dict[int, None] = {}
        self._new: dict[int, None] = {}
        """Configs that are not in the posterior yet."""
        self._free = np.ones(len(self._points), np.bool_)
        self._known: list[int] = []
        """Configs in the posterior, in its order."""
        self._pool: Indices = np.zeros(0, np.int64)
        """Configs in the posterior, or among its candidates."""
        self._place: dict[int, int] = {}
        """Index in the pool by config."""
        self._room = 0
        """Number of configs that can be added before the next fit."""
        self._spread = 1.0
        """Standard deviation of the values before they were standardised."""
        self._queue: list[int] = []
        self._improvement = convergence.improvement
        self._convergence = Convergence(convergence)
        self._min_improvement_probability = min_improvement_probability
        self._may_neglect = True
        """False once each choice of each knob was taken often enough."""
        self._looked_at_all = False
        """True if all free configs were looked at, beside the candidates, since no improvement is expected."""
        self._posterior: Posterior | None = None

    def start(self, config: int) -> None:
        """Note that a config runs."""
        self._free[config] = False
        if self._estimates is not None:
            self._estimates.take(config)
        self._running[config] = None
        if config not in self._known:
            self._new[config] = None

    def tell(self, config: int, log_latency: float) -> None:
        """Learn the result of a config: infinite if it failed."""
        if config not in self._running:
            self.start(config)
        del self._running[config]
        self._convergence.tell(config, log_latency)
        self._results[config] = log_latency

    @property
    def improvement_probability(self) -> float:
        """Probability that the most promising free config beats the best by 1 %, as `Convergence` estimates it.

        It is 1 while some choice of a knob was taken too seldom, or the search would end and no look at all free
        configs was taken yet.
        """
        probability = self._convergence.probability
        if self._takes_neglected or (probability < self._min_improvement_probability and not self._looked_at_all):
            return 1.0
        return probability

    @property
    def _takes_neglected(self) -> bool:
        """True if the search nearly converged, and some choice may be neglected."""
        limit = self._settings.early * self._min_improvement_probability
        return self._may_neglect and self._convergence.probability < limit

    @ONE_THREAD
    def propose(self) -> int:
        """Return a free config."""
        self._put_off()
        if len(self._results) < self._settings.min_results or not self._points.starts.size:
            return self._far_config()
        while self._queue:
            if self._free[config := self._queue.pop()]:
                return config
        posterior = self._updated_posterior()
        closely = len(self._results) % self._settings.close_look_every == 0
        values = self._values(closely)
        if self._estimates is None or closely:
            mean, deviation = posterior.predict(values)
        else:
            mean, deviation = self._predicted(self._estimates, posterior, values)
        promise = np.where(self._free[self._pool], self._settings.exploration * deviation - mean, -np.inf)
        config = int(self._pool[np.argmax(promise)])
        if not closely:
            config = self._weighed(config, float(np.nanmin(values)), mean, deviation)
        if self._takes_neglected:
            settings = self._settings
            neglected = self._points.neglected(self._free, settings.min_per_choice, settings.max_choices)
            self._may_neglect = bool(neglected.any())
            if self._may_neglect:
                return self._most_promising_neglected(neglected, promise)
        if len(self._results) > self._settings.max_known:
            self._queue = self._pool[np.argsort(-promise)[1 : self._settings.batch]][::-1].tolist()
        return config

    def _put_off(self) -> None:
        """Estimate all configs once; put off those that are expected to be far slower, until no other one is free."""
        if self._estimates_of is not None and self._estimates is None:
            self._estimates = Estimates(self._estimates_of(), self._free, self._trust)
            self._free[self._estimates.put_off] = False
        if self._estimates is not None and not self._free.any():
            self._free[self._estimates.released()] = True

    def _predicted(self, estimates: Estimates, posterior: Posterior, values: Floats) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of each candidate, around what its estimate lets expect."""
        estimates.weigh(posterior, self._known, values)
        if estimates.are_wrong(self._known, values):
            self._free[estimates.released()] = True
        mean, deviation = posterior.predict(values - estimates.expected(self._known))
        return mean + estimates.expected(self._pool), deviation

    def _weighed(self, config: int, best: float, mean: Floats, deviation: Floats) -> int:
        """Note the probabilities of a proposal to improve on `best`, a standardised value; return the proposal.

        If the search would end, all other free configs are predicted too, since the candidates may be a sample. The
        most promising of them is returned in place of the proposal if it may well be faster.
        """
        better = best - self._improvement / self._spread
        z = np.where(self._free[self._pool], (better - mean) / deviation, -np.inf)
        self._convergence.propose(config, _normal(float(z[self._place[config]])), _normal(float(z.max())))
        limit = self._min_improvement_probability
        if self._looked_at_all or self._convergence.probability >= limit:
            self._looked_at_all = self._looked_at_all and self._convergence.probability < limit
            return config
        other, highest = self._most_probable_elsewhere(better)
        self._convergence.raise_last(_normal(highest))
        self._looked_at_all = self._convergence.probability < limit
        return config if self._looked_at_all else other

    def _most_probable_elsewhere(self, better: float) -> tuple[int, float]:
        """Return the free config, of those that are no candidates, most probably below `better`, and its quantile."""
        assert self._posterior is not None
        elsewhere = self._free.copy()
        elsewhere[self._pool] = False
        configs, found, highest = np.flatnonzero(elsewhere), 0, -np.inf
        for start in range(0, len(configs), self._settings.max_chunk):
            chunk = configs[start : start + self._settings.max_chunk]
            expected = 0.0 if self._estimates is None else self._estimates.expected(chunk)
            z = self._posterior.quantiles(self._scaled(chunk), better - expected)
            if z.max() > highest:
                found, highest = int(chunk[np.argmax(z)]), float(z.max())
        return found, highest

    def _updated_posterior(self) -> Posterior:
        """Return the posterior with the new configs: fitted again if they are too many or none is free."""
        if (
            self._posterior is None
            or len(self._new) > self._room
            or not self._place.keys() >= self._new.keys()
            or not self._free[self._pool].any()
        ):
            self._posterior = self._fit()
        for config in self._new:
            self._posterior.add(self._place[config])
        self._known += self._new
        self._room -= len(self._new)
        self._new.clear()
        return self._posterior

    def _most_promising_neglected(self, neglected: Flags, promise: Floats) -> int:
        """Return the most promising neglected config, or a random one if none is a candidate."""
        candidates = neglected[self._pool]
        if candidates.any():
            config = int(self._pool[np.argmax(np.where(candidates, promise, -np.inf))])
        else:
            config = int(self._random.choice(np.flatnonzero(neglected)))
        return config

    def _far_config(self) -> int:
        """Return, among some random free configs, the one farthest from all taken ones, or the most promising one."""
        free, taken = np.flatnonzero(self._free), np.array([*self._results, *self._running], np.int64)
        if self._estimates is not None and not len(taken):
            return int(self._estimates.promising(free)[0])
        if self._estimates is not None and not self._estimates.is_far(len(taken)):
            free = self._estimates.promising(free)
            return self._estimates.next(free, covariances(self._points.of(free), self._points.of(taken)).max(1))
        drawn = self._random.choice(free, min(self._settings.spread_sample, -(-len(free) // 2)), replace=False)
        if not len(taken):
            return int(drawn[0])
        return int(drawn[np.argmin(covariances(self._points.of(drawn), self._points.of(taken)).max(1))])

    def _fit(self) -> Posterior:
        """Fit the covariance to the results, draw candidates, and return their posterior."""
        ranked = sorted(self._results, key=self._results.__getitem__)
        most = self._settings.max_known
        if len(ranked) > most:
            others = self._random.choice(ranked[most // 2 :], most // 2, replace=False)
            ranked = [*ranked[: most // 2], *others.tolist()]
        if len(self._results) <= most or self._posterior is None:
            self._known = ranked
            values, distances = self._values(), self._points.distances(ranked)
            if self._estimates is not None:
                values = values - self._estimates.expected(ranked)
                values -= values.mean()
            self._covariance = fitted(self._covariance, self._prior, distances, values)
        self._known = [*ranked, *self._running]
        self._new.clear()
        self._pool = np.concatenate([self._known, self._candidates(ranked[: self._settings.leaders])])
        self._place = {config: place for place, config in enumerate(self._pool.tolist())}
        growth = int(self._settings.refit_growth * len(self._known))
        self._room = max(self._settings.min_new, min(self._settings.max_new, growth))
        return Posterior(self._scaled(self._pool), self._covariance.noise, len(self._known), self._room)

    def _candidates(self, leaders: Sequence[int]) -> Indices:
        """Return the free configs; if they are too many, the leaders' neighbours and random others."""
        free = np.flatnonzero(self._free)
        most = max(self._settings.min_candidates, self._settings.max_cells // len(self._known))
        if len(free) <= most:
            return free
        near = np.zeros(len(free), np.bool_)
        for leader in leaders:
            near |= self._points.near(leader, free)
        if self._estimates is not None:
            near |= np.isin(free, self._estimates.promising(free, most // 3))
        drawn = self._random.choice(free[~near], min(most, int(np.count_nonzero(~near))), replace=False)
        return np.concatenate([free[near], drawn])

    def _values(self, closely: bool = False) -> Floats:
        """Return the known configs' values, standardised; NaN while they run.

        Args:
            closely: use the logarithm of the distance to the best, not the log latency.
        """
        values = np.array([self._results.get(config, np.nan) for config in self._known])
        ended, ran, failed = ~np.isnan(values), np.isfinite(values), np.isinf(values)
        if not ran.any():
            return np.where(ended, 0.0, values)
        if failed.any():
            values[failed] = np.quantile(values[ran], self._settings.failed_quantile)
        if closely:
            behind = values - values[ended].min()
            offset = np.quantile(behind[ended], self._settings.close_look_quantile)
            values = np.log(behind + offset + self._settings.min_distance)
        self._spread = float(values[ended].std()) + 1e-12
        if self._estimates is not None and not closely:
            self._estimates.standardise(np.array(self._known)[ended], self._spread)
        return np.asarray((values - values[ended].mean()) / self._spread)

    def _scaled(self, configs: Indices) -> Floats:
        """Return the points of configs, scaled by the fitted covariance."""
        return self._covariance.scaled(self._points.of(configs), self._points.starts)


def _normal(quantile: float) -> float:
    """Return the probability of a standard normal variable to be below a quantile."""
    return (1 + erf(quantile / sqrt(2))) / 2
