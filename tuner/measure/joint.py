"""Several problems measured as one: what a search for one config of all of them needs in the place of a measurer.

A config's latency on a problem is taken as a ratio to that of the problem's yardstick, its kernel's default, and the
ratios are joined to the one number that the search sees. A card serves one problem at a time, so a batch of configs
goes from problem to problem, and what fails or is far behind at one is spared the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from statistics import geometric_mean
from time import monotonic

from tuner.errors import MeasureError
from tuner.kernels.spec import Config, Problem
from tuner.measure.measurer import Measurer
from tuner.records import VENDOR, Comparison, Evidence, Measurement, Outcome, median

Join = Callable[[Sequence[float]], float]
OBJECTIVES: Mapping[str, Join] = {"geomean": geometric_mean, "worst": max}
"""What is made of a config's ratios, by the name that a user gives; the lower the better."""
_BEATEN = 2.0
"""A config that cannot come within this of the best is spared the problems that are left."""
_ROUNDS, _ROUNDS_S = 10, 1.0
"""What a yardstick is timed in, and the longest that may take. A single visit may be off by a factor of two, most of
all the first one on a card (gemm 16 x 4096 x 4096, H200, 2026-11-28), and the worst of several problems would be
another one by that."""
_LEAST_ROUNDS_S = 0.25
"""What a problem's rounds may take when time is up: one with few would leave all of them with few."""


@dataclass(frozen=True)
class JointProblem:
    """One of the problems."""

    problem: Problem
    measurer: Callable[[], Measurer]
    """Starts measuring it, or goes on; called when it is its turn, and closed at the end of that."""
    default: Config | None
    own: Config | None = None
    """The problem's own answer, which meets the others in the duel."""
    known: Sequence[Measurement] = ()
    """Measurements of earlier runs, not repeated."""


@dataclass(frozen=True)
class JointComparison(Comparison):
    """Rounds of several problems as one: of every contender the joined ratios, as many as every problem has."""

    parts: tuple[Comparison, ...] = ()
    """Each problem's own rounds, in us."""
    companions: tuple[tuple[str, ...], ...] = ()
    """Of each problem those who meet the contenders there: its yardstick first, then its own answer."""

    def extended(self, other: Comparison) -> JointComparison:
        """As `Duel`'s; where a companion has failed meanwhile, only the rounds without it count."""
        assert isinstance(other, JointComparison)
        if other.companions != self.companions:
            return other
        both = super().extended(other)
        parts = (part.extended(more.among(part.contenders)) for part, more in zip(self.parts, other.parts, strict=True))
        return JointComparison(both.contenders, both.rounds, both.states, tuple(parts), self.companions)

    def among(self, contenders: Sequence[str]) -> JointComparison:
        """As `Duel`'s; the companions stay."""
        fewer = super().among(contenders)
        parts = (
            part.among(list(dict.fromkeys([*contenders, *companions])))
            for part, companions in zip(self.parts, self.companions, strict=True)
        )
        return JointComparison(fewer.contenders, fewer.rounds, fewer.states, tuple(parts), self.companions)


class JointMeasurer:
    """Measures configs on every problem, and reports them with one number each, as if it were a latency in us.

    Args:
        parts: at least two.
        join: one of `OBJECTIVES`.
        on_measured: called with the problem's place and its own measurement the moment that ends.
    """

    def __init__(
        self,
        parts: Sequence[JointProblem],
        join: Join,
        on_measured: Callable[[int, Measurement], None] = lambda place, measurement: None,
    ) -> None:
        self._parts, self._join, self._on_measured = parts, join, on_measured
        self._found = [{measurement.config: measurement for measurement in part.known} for part in parts]
        self._fastest_us = [min((m.latency_us for m in part.known), default=inf) for part in parts]
        self._yardsticks: dict[int, tuple[Config, float]] = {}
        """By place: the config, and its latency in us."""
        self._best = inf
        self._open: Measurer | None = None
        self._place = 0
        self._submitted: list[Config] = []
        self._batch: list[Config] = []
        self._tour: list[int] = []
        """The problems that the batch has still to visit, this one first."""
        self._asked: set[Config] = set()
        """Configs that are on their way on this problem."""
        self._done: deque[Measurement] = deque()

    @property
    def capacity(self) -> int:
        return self._at(self._place).capacity

    @property
    def waits_for_device(self) -> bool:
        return self._at(self._place).waits_for_device

    @property
    def round_us(self) -> float:
        """What the yardsticks take together: a launch on every problem."""
        return sum(latency_us for _, latency_us in self._yardsticks.values())

    def is_measured(self, config: Config) -> bool:
        """Whether it was measured on every problem: one that was far behind early is reported all the same."""
        return all(config in found for found in self._found)

    def submit(self, config: Config) -> None:
        self._submitted.append(config)

    def next(self, timeout_s: float) -> Measurement | None:
        until = monotonic() + timeout_s
        while not self._done and (self._tour or self._submitted):
            if not self._tour:
                self._batch, self._submitted = self._submitted, []
                self._tour = self._from_here()
                self._go_on()
            elif self._asked:
                measurement = self._at(self._place).next(max(0.0, until - monotonic()))
                if measurement is None:
                    return None
                self._take(measurement)
            else:
                self._leave()
        return self._done.popleft() if self._done else None

    def settle(self, timeout_s: float) -> Sequence[Measurement]:
        for measurement in self._at(self._place).settle(timeout_s):
            self._take(measurement)
        if self._tour and self._place not in self._yardsticks:
            self._choose_yardstick(self._place)
        ended = [*self._done, *self._ended(self._batch)]
        self._done.clear()
        self._asked.clear()
        self._submitted, self._batch, self._tour = [], [], []
        return ended

    def recheck(self, configs: Sequence[Config], seed: int) -> Sequence[Evidence | Measurement]:
        """Evidence of the problem where the error is nearest to what is allowed, and of the launches on all."""
        right: dict[Config, list[Evidence]] = {config: [] for config in configs}
        failed: dict[Config, Measurement] = {}
        for place in self._from_here():
            left = [config for config in configs if config not in failed]
            for config, answer in zip(left, self._at(place).recheck(left, seed), strict=True):
                if isinstance(answer, Measurement):
                    self._take(answer)
                    failed[config] = self._failed(place, answer)
                else:
                    right[config].append(answer)
        return [failed.get(config) or _nearest_to_wrong(right[config]) for config in configs]

    def compare(self, configs: Sequence[Config], rounds: int, seconds: float, seed: int) -> Comparison | Measurement:
        """Rounds on every problem, each with its yardstick and its own answer."""
        end, comparisons = monotonic() + seconds, dict[int, Comparison]()
        for place in self._from_here():
            share = (end - monotonic()) / (len(self._parts) - len(comparisons))
            comparison = self._compare_finalists(place, configs, rounds, max(share, _LEAST_ROUNDS_S), seed)
            if isinstance(comparison, Measurement):
                return self._failed(place, comparison)
            comparisons[place] = comparison
        return self._as_one(configs, [comparisons[place] for place in range(len(self._parts))])

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
        self._open = None

    def _at(self, place: int) -> Measurer:
        """The measurer of a problem; that of another is closed first."""
        if self._open is None or place != self._place:
            self.close()
            self._open, self._place = self._parts[place].measurer(), place
        return self._open

    def _from_here(self) -> list[int]:
        """All problems, first the one whose measurer is there: a turn to another takes a moment."""
        return [*range(self._place, len(self._parts)), *range(self._place)]

    def _go_on(self) -> None:
        """Reports those of the batch of which enough is known; the others visit the next problem, with its default."""
        ended = {measurement.config: measurement for measurement in self._ended(self._batch)}
        self._done += ended.values()
        self._batch = [config for config in self._batch if config not in ended]
        if not self._batch:
            self._tour.clear()
            return
        place = self._tour[0]
        default = self._parts[place].default
        for config in dict.fromkeys(self._batch if default is None else [default, *self._batch]):
            if config not in self._found[place]:
                self._at(place).submit(config)
                self._asked.add(config)

    def _leave(self) -> None:
        """The problem at hand has said what it can."""
        place = self._tour.pop(0)
        if place not in self._yardsticks:
            self._choose_yardstick(place)
        self._go_on()

    def _take(self, measurement: Measurement) -> None:
        """Keeps what came of a config on the problem at hand."""
        self._found[self._place][measurement.config] = measurement
        self._fastest_us[self._place] = min(self._fastest_us[self._place], measurement.latency_us)
        self._asked.discard(measurement.config)
        if not measurement.ok and self._yardsticks.get(self._place, (None,))[0] == measurement.config:
            del self._yardsticks[self._place]
        self._on_measured(self._place, measurement)

    def _choose_yardstick(self, place: int) -> None:
        """Takes the default, or, where that does not run, the fastest that is known by now; if any does."""
        default, right = self._parts[place].default, [m for m in self._found[place].values() if m.ok]
        for measurement in sorted(right, key=lambda m: (m.config != default, m.latency_us)):
            config = measurement.config
            comparison = self._at(place).compare([config], _ROUNDS, _ROUNDS_S, 0)
            if isinstance(comparison, Comparison):
                self._yardsticks[place] = config, median(comparison.of(config.text))
                break
            self._take(comparison)

    def _ended(self, configs: Sequence[Config]) -> list[Measurement]:
        return [measurement for config in configs if (measurement := self._joined(config)) is not None]

    def _joined(self, config: Config) -> Measurement | None:
        """What a config comes to, where enough is known: all, a failure, or that it is far behind the best."""
        measured = [found.get(config) for found in self._found]
        for place, measurement in enumerate(measured):
            if measurement is not None and not measurement.ok:
                return self._failed(place, measurement)
        if len(self._yardsticks) < len(self._parts):
            return None
        at_best_us = [
            fastest_us if measurement is None else measurement.latency_us
            for measurement, fastest_us in zip(measured, self._fastest_us, strict=True)
        ]
        joined = self._join([latency_us / self._yardsticks[place][1] for place, latency_us in enumerate(at_best_us)])
        if None in measured and joined <= _BEATEN * self._best:
            return None
        self._best = min(self._best, joined)
        shared = max((m.shared_bytes or 0 for m in measured if m is not None), default=0)
        return Measurement(config, Outcome.OK, (joined,), shared_bytes=shared)

    def _failed(self, place: int, measurement: Measurement) -> Measurement:
        """A failure on one problem is one on all."""
        return replace(measurement, error=f"{self._parts[place].problem.text}: {measurement.error}")

    def _compare_finalists(
        self, place: int, configs: Sequence[Config], rounds: int, seconds: float, seed: int
    ) -> Comparison | Measurement:
        """One problem's rounds; a companion that fails leaves them, and another yardstick takes its place."""
        while True:
            comparison = self._at(place).compare(
                list(dict.fromkeys([*configs, *self._companions(place)])), rounds, seconds, seed
            )
            if isinstance(comparison, Comparison):
                return comparison
            self._take(comparison)
            if comparison.config in configs:
                return comparison

    def _companions(self, place: int) -> list[Config]:
        """The yardstick of a problem, then its own answer."""
        if place not in self._yardsticks:
            self._choose_yardstick(place)
        if place not in self._yardsticks:
            raise MeasureError(f"no config is left that runs on {self._parts[place].problem.text}")
        own = self._parts[place].own
        known = None if own is None else self._found[place].get(own)
        return [self._yardsticks[place][0], *([own] if own is not None and (known is None or known.ok) else [])]

    def _as_one(self, configs: Sequence[Config], comparisons: Sequence[Comparison]) -> JointComparison:
        contenders = (*(config.text for config in configs), VENDOR)
        companions = [tuple(config.text for config in self._companions(place)) for place in range(len(comparisons))]
        columns = [
            [
                _ratios(comparison, contender, baseline)
                for comparison, (baseline, *_) in zip(comparisons, companions, strict=True)
            ]
            for contender in contenders
        ]
        joined = ([self._join(ratios) for ratios in zip(*column, strict=False)] for column in columns)
        states = tuple(state for comparison in comparisons for state in comparison.states)
        return JointComparison(
            contenders, tuple(zip(*joined, strict=True)), states, tuple(comparisons), tuple(companions)
        )


def _nearest_to_wrong(found: Sequence[Evidence]) -> Evidence:
    nearest = max(found, key=lambda each: (each.max_error or 0.0) / each.tolerance if each.tolerance else 0.0)
    return replace(nearest, launches=sum(each.launches for each in found))


def _ratios(comparison: Comparison, contender: str, baseline: str) -> list[float]:
    """A contender's latencies over the yardstick's, round by round."""
    return [one / other for one, other in zip(comparison.of(contender), comparison.of(baseline), strict=True)]
