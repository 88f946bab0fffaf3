"""A Gaussian process of log latency over an enumerated set of configs, with numpy alone.

All that may be proposed is known beforehand, so learning one more config is one more row of a matrix over the
candidates; and a config on its way makes its neighbourhood known before its latency is (Desautels et al.,
"Parallelizing Exploration-Exploitation Tradeoffs in Gaussian Process Bandit Optimization", JMLR 2014), which spreads a
batch. Work and memory are bounded, however long it goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from math import erf, inf, log, sqrt

import numpy as np
import numpy.typing as npt

from tuner.kernels.spec import Value
from tuner.measure.cores import ONE_THREAD

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int16]
Flags = npt.NDArray[np.bool_]

_START = 2
"""Results before the model proposes; until then configs are taken far from each other."""
_DRAWN = 64
"""How far: the farthest of so many at random. Of all, it would be a corner of the space, where configs are bad."""
_CURIOSITY = 1.5
"""A candidate is as promising as its mean less so many standard deviations."""
_CLOSELY, _CLOSE = 3, 0.3
"""Every third proposal looks at the logarithm of how far behind the best a config is, beyond what this share of them
are: where most are as fast, and some far slower, that tells the leaders apart."""
_TINY = 1e-3
"""By less, of a log latency, nothing is behind."""
_BETTER = log(1.01)
"""What is faster by less is as good."""
_SURE, _FEWEST_TOLD = 8, 30
"""Nothing is hoped for once so many proposals in a row say so, of those that do not look closely, and so many results
are in."""
_FEWEST_OF_A_CHOICE, _MOST_CHOICES, _EARLY = 3, 16, 2.0
"""And once every choice was taken so often, of every knob that has no more than so many: what was hardly tried is
thought to be as slow as what is like it in all else, and now and then is far faster. That begins while so many times
the chance is left, so that most results are in when it is time to end; one that surprises gives hope again."""
_FAILED = 0.9
"""A failed config counts as if it were this quantile of those that ran."""
_GROWTH, _FEWEST_NEW, _MOST_NEW = 0.25, 4, 64
"""Knobs are weighed again after so many more configs: a share of those known, within limits."""
_MOST_KNOWN = 192
"""Of more results it learns from the fastest half of so many and others at random; the weights stay."""
_BATCH = 16
"""So many proposals are made at once then."""
_CELLS, _FEWEST_CANDIDATES = 300_000, 1000
"""Size of the matrix of known configs x candidates. Of more candidates than fit, it looks at the leaders' neighbours
and at others at random."""
_LEADERS = 3
_STEPS = 15
_LOG_WEIGHT, _LOG_APART, _LOG_NOISE, _SPREAD = 0.0, -3.0, float(np.log(1e-3)), 2.0
"""What is thought of weights and noise before there are results: latency changes over a knob's whole range, and hardly
at single choices in the midst of it."""


@dataclass(frozen=True)
class _Kernel:
    """Covariance of log latency between points: Matern 5/2 in a distance that weighs every block by itself."""

    log_weights: Floats
    log_noise: float

    @property
    def noise(self) -> float:
        """Variance of a result over that of the function, of which the configs' own quirks are a part."""
        return float(np.exp(self.log_noise))

    def stretched(self, points: Floats, starts: Numbers) -> Floats:
        """Points whose plain distance is the kernel's; their blocks' first columns are `starts`."""
        widths = np.diff([*starts, points.shape[1]])
        return np.asarray(points * np.repeat(np.exp(self.log_weights / 2), widths))


class _Posterior:
    """What is known of the candidates once some are. How sure one may be depends on which, not on their values."""

    def __init__(self, points: Floats, noise: float, known: int, room: int) -> None:
        """The first `known` of the stretched `points` are known, and `room` more can be."""
        self._points, self._noise = points, noise
        covariance = _covariance(points[:known], points)
        lower = np.linalg.cholesky(covariance[:, :known] + noise * np.eye(known))
        self._lower = np.zeros((known + room, known + room))
        self._lower[:known, :known] = lower
        self._rows = np.empty((known + room, len(points)))
        self._rows[:known] = np.linalg.inv(lower) @ covariance
        self._variance = 1 - (self._rows[:known] ** 2).sum(0)
        self._known = known

    def add(self, place: int) -> None:
        """One more is known."""
        n = self._known
        before = self._rows[:n, place].copy()
        deviation = np.sqrt(max(1 - float(before @ before), 0.0) + self._noise)
        covariance = _covariance(self._points[place : place + 1], self._points)[0]
        self._rows[n] = (covariance - before @ self._rows[:n]) / deviation
        self._variance -= self._rows[n] ** 2
        self._lower[n, :n], self._lower[n, n] = before, deviation
        self._known += 1

    def predict(self, values: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation of every candidate, given the values of the known ones; NaN if on its way.

        One on its way is thought to become what those before it predict, which adds nothing to the mean.
        """
        surprises = np.zeros(self._known)
        for n, value in enumerate(values):
            if value == value:
                surprises[n] = (value - self._lower[n, :n] @ surprises[:n]) / self._lower[n, n]
        told = np.count_nonzero(~np.isnan(values))
        scale = (surprises @ surprises + 2) / (told + 2)
        return surprises @ self._rows[: self._known], np.sqrt(np.maximum(self._variance, 1e-12) * scale)


class GaussianProcess:
    """Learns which configs of a space are fast, and names the one to try next.

    Args:
        knobs: the values of every knob, one for each config. Ints have an order; bools and strings have none.
        seed: two models told the same propose the same.
        least_hope: the chance below which nobody will ask any more; choices that were neglected have their turn before.
    """

    def __init__(self, knobs: Iterable[Sequence[Value]], seed: int, min_improvement_probability: float = 0.0) -> None:
        changing = [_coded(values) for values in knobs if len(set(values)) > 1]
        codes = [codes for codes, _ in changing]
        self._codes: Codes = np.column_stack(codes) if codes else np.zeros((1, 0), np.int16)
        blocks = [[*_blocks(choices)] for _, choices in changing]
        self._columns = [np.hstack([columns for columns, _ in of_knob]) for of_knob in blocks]
        self._starts: Numbers = np.cumsum([0, *(columns.shape[1] for columns, _ in chain(*blocks))])[:-1]
        self._prior = self._kernel = _Kernel(np.array([weight for _, weight in chain(*blocks)]), _LOG_NOISE)
        self._random = np.random.default_rng(seed)
        self._told: dict[int, float] = {}
        self._on_the_way: dict[int, None] = {}
        self._new: dict[int, None] = {}
        self._free = np.ones(len(self._codes), np.bool_)
        self._known: list[int] = []
        self._pool: Numbers = np.zeros(0, np.int64)
        self._place: dict[int, int] = {}
        self._room = 0
        self._spread = 1.0
        self._queue: list[int] = []
        self._hopes: deque[float] = deque(maxlen=_SURE)
        self._least_hope = min_improvement_probability
        self._neglects = True
        """Whether some choice may have been taken too seldom; looked at when all else says that it is over."""
        self._turns: set[int] = set()
        """Configs that were proposed for such a choice, until they are told."""
        self._posterior: _Posterior | None = None

    def start(self, config: int) -> None:
        """A config, by its number, is on its way."""
        self._free[config] = False
        self._on_the_way[config] = None
        if config not in self._known:
            self._new[config] = None

    def tell(self, config: int, log_latency: float) -> None:
        """How a config did; infinite where it failed."""
        if config not in self._on_the_way:
            self.start(config)
        del self._on_the_way[config]
        if config in self._turns:
            self._turns.remove(config)
            if log_latency < min(self._told.values(), default=inf) - _BETTER:
                self._hopes.clear()
        self._told[config] = log_latency

    @property
    def improvement_probability(self) -> float:
        """The chance that the most promising free config is faster than all that are known by more than 1 %.

        The highest of the last few proposals; 1 while there were too few, or too few results, or of some choice.
        """
        return 1.0 if self._makes_up else self._chance_left

    @property
    def _chance_left(self) -> float:
        """As `hope`, whatever was neglected."""
        return max(self._hopes) if len(self._hopes) == _SURE and len(self._told) >= _FEWEST_TOLD else 1.0

    @property
    def _makes_up(self) -> bool:
        """Whether it is nearly sure, and some choice may have been neglected."""
        return self._neglects and self._chance_left < _EARLY * self._least_hope

    @ONE_THREAD
    def propose(self) -> int:
        """The number of a free config."""
        if len(self._told) < _START or not self._starts.size:
            return self._apart()
        while self._queue:
            if self._free[config := self._queue.pop()]:
                return config
        if (
            len(self._new) > self._room
            or not self._place.keys() >= self._new.keys()
            or not self._free[self._pool].any()
        ):
            self._posterior = self._fit()
        assert self._posterior is not None
        for config in self._new:
            self._posterior.add(self._place[config])
        self._known += self._new
        self._room -= len(self._new)
        self._new.clear()
        closely = len(self._told) % _CLOSELY == 0
        values = self._values(closely)
        mean, deviation = self._posterior.predict(values)
        if not closely:
            self._hopes.append(self._chance(float(np.nanmin(values)), mean, deviation))
        promise = np.where(self._free[self._pool], _CURIOSITY * deviation - mean, -np.inf)
        if self._makes_up:
            neglected = self._neglected()
            self._neglects = bool(neglected.any())
            if self._neglects:
                return self._turn(neglected, promise)
        if len(self._told) > _MOST_KNOWN:
            self._queue = self._pool[np.argsort(-promise)[1:_BATCH]][::-1].tolist()
        return int(self._pool[np.argmax(promise)])

    def _turn(self, neglected: Flags, promise: Floats) -> int:
        """The most promising of the neglected configs; any of them, if none is among the candidates."""
        among = neglected[self._pool]
        if among.any():
            config = int(self._pool[np.argmax(np.where(among, promise, -np.inf))])
        else:
            config = int(self._random.choice(np.flatnonzero(neglected)))
        self._turns.add(config)
        return config

    def _neglected(self) -> Flags:
        """Which free configs have a choice that was hardly taken."""
        taken = self._codes[~self._free]
        neglected = np.zeros(len(self._codes), np.bool_)
        for codes, those in zip(self._codes.T, taken.T, strict=True):
            times = np.bincount(those, minlength=int(codes.max()) + 1)
            if len(times) <= _MOST_CHOICES:
                neglected |= (times < _FEWEST_OF_A_CHOICE)[codes]
        return neglected & self._free

    def _chance(self, best: float, mean: Floats, deviation: Floats) -> float:
        """Of the likeliest free candidate to be better than this, the best standardised value of all."""
        free = self._free[self._pool]
        better = best - _BETTER / self._spread
        z = float(np.max((better - mean[free]) / deviation[free]))
        return (1 + erf(z / sqrt(2))) / 2

    def _apart(self) -> int:
        """Of some random free configs the one that is farthest from all that were taken."""
        free, taken = np.flatnonzero(self._free), np.flatnonzero(~self._free)
        drawn = self._random.choice(free, min(_DRAWN, len(free)), replace=False)
        if not len(taken):
            return int(drawn[0])
        squares = ((self._points(drawn)[:, None] - self._points(taken)) ** 2).sum(2)
        return int(drawn[np.argmax(squares.min(1))])

    def _fit(self) -> _Posterior:
        """Weighs the knobs by what is known now, and draws candidates."""
        ranked = sorted(self._told, key=self._told.__getitem__)
        if len(ranked) > _MOST_KNOWN:
            others = self._random.choice(ranked[_MOST_KNOWN // 2 :], _MOST_KNOWN // 2, replace=False)
            ranked = [*ranked[: _MOST_KNOWN // 2], *others.tolist()]
        if len(self._told) <= _MOST_KNOWN or self._posterior is None:
            self._known = ranked
            self._kernel = _weighed(self._kernel, self._prior, self._distances(ranked), self._values())
        self._known = [*ranked, *self._on_the_way]
        self._new.clear()
        self._pool = np.concatenate([self._known, self._candidates(ranked[:_LEADERS])])
        self._place = {config: place for place, config in enumerate(self._pool.tolist())}
        self._room = max(_FEWEST_NEW, min(_MOST_NEW, int(_GROWTH * len(self._known))))
        points = self._kernel.stretched(self._points(self._pool), self._starts)
        return _Posterior(points, self._kernel.noise, len(self._known), self._room)

    def _candidates(self, leaders: Sequence[int]) -> Numbers:
        free = np.flatnonzero(self._free)
        most = max(_FEWEST_CANDIDATES, _CELLS // len(self._known))
        if len(free) <= most:
            return free
        near = np.zeros(len(free), np.bool_)
        for leader in leaders:
            near |= (self._codes[free] != self._codes[leader]).sum(1) == 1
        drawn = self._random.choice(free[~near], min(most, int(np.count_nonzero(~near))), replace=False)
        return np.concatenate([free[near], drawn])

    def _values(self, closely: bool = False) -> Floats:
        """Of the known ones, standardised: log latencies, or logs of how far behind; NaN for those on their way."""
        values = np.array([self._told.get(config, np.nan) for config in self._known])
        told, ran, failed = ~np.isnan(values), np.isfinite(values), np.isinf(values)
        if not ran.any():
            return np.where(told, 0.0, values)
        if failed.any():
            values[failed] = np.quantile(values[ran], _FAILED)
        if closely:
            behind = values - values[told].min()
            values = np.log(behind + np.quantile(behind[told], _CLOSE) + _TINY)
        self._spread = float(values[told].std()) + 1e-12
        return np.asarray((values - values[told].mean()) / self._spread)

    def _points(self, configs: Numbers) -> Floats:
        """A row for each: of every knob the columns of its choice. Of all at once they would fill the memory."""
        return np.hstack([columns[codes] for columns, codes in zip(self._columns, self._codes[configs].T, strict=True)])

    def _distances(self, configs: Sequence[int]) -> Floats:
        """Squared, by block of columns: (blocks, configs, configs)."""
        points = self._points(np.array(configs))
        squares = (points[:, None] - points) ** 2
        return np.asarray(np.moveaxis(np.add.reduceat(squares, self._starts, axis=2), 2, 0))


def _coded(values: Sequence[Value]) -> tuple[Codes, list[Value]]:
    """A knob's values as places among its choices."""
    choices = sorted(set(values), key=lambda value: (str(type(value)), value))
    places = {choice: place for place, choice in enumerate(choices)}
    return np.fromiter(map(places.__getitem__, values), np.int16, len(values)), choices


def _blocks(choices: Sequence[Value]) -> Iterator[tuple[Floats, float]]:
    """Columns that tell a knob's choices apart, by 1 at most, in blocks, with the logarithm of each block's weight.

    Ints by rank, and beside it every choice by itself: some are fast in the midst of slow ones (a pad of 2, not of 0 or
    of 8), which no distance between ranks tells.
    """
    ordered = not any(isinstance(choice, bool | str) for choice in choices)
    if ordered:
        yield np.linspace(0, 1, len(choices))[:, None], _LOG_WEIGHT
    if not ordered or len(choices) > 2:
        yield np.eye(len(choices)) / np.sqrt(2), _LOG_APART if ordered else _LOG_WEIGHT


def _covariance(some: Floats, others: Floats) -> Floats:
    squares = (some**2).sum(1)[:, None] + (others**2).sum(1) - 2 * some @ others.T
    return _matern(np.maximum(squares, 0))[0]


def _matern(squares: Floats) -> tuple[Floats, Floats]:
    """Matern 5/2 of squared distances, and its derivative."""
    distance = np.sqrt(5 * squares)
    decay = np.exp(-distance)
    return (1 + distance + distance**2 / 3) * decay, -5 / 6 * (1 + distance) * decay


def _weighed(kernel: _Kernel, prior: _Kernel, distances: Floats, values: Floats) -> _Kernel:
    """The likeliest weights and noise, from where `kernel` has them, by Riedmiller and Braun's RPROP."""
    n, middle = len(values), np.append(prior.log_weights, prior.log_noise)
    logs = np.append(kernel.log_weights, kernel.log_noise)
    steps, before = np.full(len(logs), 0.3), np.zeros(len(logs))
    least, best = np.inf, logs
    for _ in range(_STEPS if values.any() else 0):
        weights, noise = np.exp(logs[:-1]), np.exp(logs[-1])
        covariance, slope = _matern(np.tensordot(weights, distances, 1))
        covariance += noise * np.eye(n)
        inverse = np.linalg.inv(covariance)
        pulled = inverse @ values
        scale = values @ pulled / n
        loss = (n * np.log(scale) + np.linalg.slogdet(covariance)[1] + (((logs - middle) / _SPREAD) ** 2).sum()) / 2
        if loss < least:
            least, best = loss, logs
        inner = (inverse - np.outer(pulled, pulled) / scale) / 2
        gradient = (logs - middle) / _SPREAD**2
        gradient[:-1] += weights * np.einsum("ij,kij->k", inner * slope, distances)
        gradient[-1] += noise * np.trace(inner)
        same = gradient * before
        steps = np.clip(np.where(same > 0, 1.3 * steps, np.where(same < 0, 0.5 * steps, steps)), 1e-3, 1.0)
        before = np.where(same < 0, 0, gradient)
        logs = np.clip(logs - steps * np.sign(gradient), -8, 8)
    return _Kernel(best[:-1], float(best[-1]))
