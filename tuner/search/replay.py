"""How good a sampler is, told by replaying spaces of which every config was measured.

A look-up is free of noise: it gives the median. As on a card, a batch is on its way before the first result comes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf
from statistics import geometric_mean

from tuner.kernels.spec import Config
from tuner.records import Measurement
from tuner.search.sampler import Maker, Proposer

AT = (10, 25, 50, 100, 200)
"""Evaluations after which a sampler is judged."""
FLOOR = 1e-3
"""A smaller gap counts as this one in a geometric mean, which zero would end."""


@dataclass(frozen=True)
class ReplaySpace:
    """What is replayed. The default, if any, and what won near problems go first where that is asked for."""

    name: str
    measurements: tuple[Measurement, ...]
    default: Config | None = None
    winners: tuple[Config, ...] = ()


@dataclass(frozen=True)
class Score:
    """How a sampler did on a space: of every seed, the share of the optimum's speed after each evaluation."""

    space: str
    sampler: str
    shares: tuple[tuple[float, ...], ...]

    def at(self, evaluations: int) -> list[float]:
        """Of every seed, after so many; after the last one where the space has fewer."""
        return [shares[min(evaluations, len(shares)) - 1] for shares in self.shares]

    def share(self, evaluations: int) -> float:
        """Mean share of the optimum's speed."""
        return sum(self.at(evaluations)) / len(self.shares)

    def tenth(self, evaluations: int) -> float:
        """10th percentile of that share: one seed in ten does worse."""
        return sorted(self.at(evaluations))[(len(self.shares) - 1) // 10]

    def gap(self, evaluations: int) -> float:
        """Mean of latency / optimum - 1; infinite if some seed had nothing that ran by then."""
        return sum(1 / share - 1 if share else inf for share in self.at(evaluations)) / len(self.shares)


def replay(
    space: ReplaySpace,
    sampler: str | Maker,
    *,
    seeds: int,
    trials: int = AT[-1],
    batch: int = 8,
    default_first: bool = False,
    warm_start: bool = False,
) -> Score:
    """Runs a sampler, by name or of one's own making, on a space, once a seed."""
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
    """The configs in the order in which their results came."""
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
    """Over spaces, of the mean gaps."""
    return geometric_mean(max(score.gap(evaluations), FLOOR) for score in scores)
