"""Scores of samplers, from replaying recorded spaces.

A replay has no noise: each config's latency is its median. As on a card, several configs run at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf
from statistics import geometric_mean
from typing import TYPE_CHECKING

from tuner.kernels.spec import Config
from tuner.records import Measurement

if TYPE_CHECKING:
    from tuner.search.proposer import Proposer
    from tuner.search.samplers.base import SamplerFactory

AT = (10, 25, 50, 100, 200)
"""Evaluations after which a sampler is scored."""
MIN_GAP = 1e-3
"""Lower limit of a gap in a geometric mean, which a gap of zero would make zero."""


@dataclass(frozen=True)
class ReplaySpace:
    """A space of measured configs, with the configs that a search measures first."""

    name: str
    measurements: tuple[Measurement, ...]
    default: Config | None = None
    """The kernel's default, if it ran."""
    winners: tuple[Config, ...] = ()
    """Winners of near problems."""


@dataclass(frozen=True)
class Score:
    """The score of a sampler on a space."""

    space: str
    sampler: str
    shares: tuple[tuple[float, ...], ...]
    """Share of the optimum's speed after each evaluation, for each seed."""

    def at(self, evaluations: int) -> list[float]:
        """Return each seed's share after a number of evaluations; after the last one if the space has fewer."""
        return [shares[min(evaluations, len(shares)) - 1] for shares in self.shares]

    def share(self, evaluations: int) -> float:
        """Return the mean share of the optimum's speed."""
        return sum(self.at(evaluations)) / len(self.shares)

    def tenth(self, evaluations: int) -> float:
        """Return the 10th percentile of the share: one seed in ten is worse."""
        return sorted(self.at(evaluations))[(len(self.shares) - 1) // 10]

    def gap(self, evaluations: int) -> float:
        """Return the mean of latency / optimum - 1; infinite if no config had run for some seed."""
        return sum(1 / share - 1 if share else inf for share in self.at(evaluations)) / len(self.shares)


def replay(
    space: ReplaySpace,
    sampler: str | SamplerFactory,
    *,
    seeds: int,
    trials: int = AT[-1],
    batch: int = 8,
    default_first: bool = False,
    warm_start: bool = False,
) -> Score:
    """Run a sampler on a space, once for each seed.

    Args:
        space: what is replayed.
        sampler: one of `SAMPLERS`, or a factory such as a subclass of `FeasibleSampler`.
        seeds: number of runs.
        trials: number of configs in a run.
        batch: number of configs that run at once.
        default_first: whether the default is taken first.
        warm_start: whether the winners of near problems are taken next.
    """
    from tuner.search.proposer import Proposer  # needs optuna, and the help of `tuner replay` does not

    latencies = {measurement.config: measurement.latency_us for measurement in space.measurements}
    known = {measurement.config: measurement for measurement in space.measurements}
    optimum = min(latencies.values())
    first = [space.default] if default_first and space.default is not None else []
    first += [config for config in space.winners if config not in first] if warm_start else []

    def shares(seed: int) -> tuple[float, ...]:
        found = _run(known, Proposer([*known], sampler, seed), first, trials, batch)
        return tuple(optimum / best for best in accumulate((latencies[config] for config in found), min))

    name = sampler if isinstance(sampler, str) else getattr(sampler, "__name__", repr(sampler))
    return Score(space.name, name, tuple(map(shares, range(seeds))))


def _run(
    known: dict[Config, Measurement], proposer: Proposer, first: Sequence[Config], trials: int, batch: int
) -> list[Config]:
    """Return the configs in the order of their results."""
    found: list[Config] = []
    waiting = deque(proposer.take(config) for config in first)
    while len(found) < trials:
        while len(waiting) < min(batch, trials - len(found)) and (config := proposer.ask()) is not None:
            waiting.append(config)
        if not waiting:
            break
        found.append(waiting.popleft())
        proposer.tell(known[found[-1]])
    return found


def geometric_gap(scores: Sequence[Score], evaluations: int) -> float:
    """Return the geometric mean of the spaces' gaps."""
    return geometric_mean(max(score.gap(evaluations), MIN_GAP) for score in scores)
