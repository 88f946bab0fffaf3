"""Interleaved rounds of several problems as one comparison, by latencies relative to each problem's baseline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import geometric_mean

from tuner.kernels.spec import Config
from tuner.records import VENDOR, Comparison

Join = Callable[[Sequence[float]], float]
"""A function that joins a config's relative latencies on all problems to one number."""
OBJECTIVES: Mapping[str, Join] = {"geomean": geometric_mean, "worst": max}
"""Functions that join relative latencies, by the name that a user gives. Lower is better."""


@dataclass(frozen=True)
class JointComparison(Comparison):
    """Rounds of several problems as one: the joined relative latencies of each contender.

    It has as many rounds as the problem with the fewest.
    """

    parts: tuple[Comparison, ...] = ()
    """Each problem's own rounds, in us."""
    companions: tuple[tuple[str, ...], ...] = ()
    """For each problem, the configs timed besides the contenders: its baseline, then its own answer if it has one."""

    def extended(self, other: Comparison) -> JointComparison:
        """Return this comparison with the rounds of a later one.

        If a companion has changed since, since it failed, only the later rounds are returned.
        """
        assert isinstance(other, JointComparison)
        if other.companions != self.companions:
            return other
        both = super().extended(other)
        parts = (part.extended(more.among(part.contenders)) for part, more in zip(self.parts, other.parts, strict=True))
        assert isinstance(both, JointComparison)
        return replace(both, parts=tuple(parts))

    def among(self, contenders: Sequence[str]) -> JointComparison:
        """Return the rounds of these contenders and the companions."""
        fewer = super().among(contenders)
        parts = (
            part.among(list(dict.fromkeys([*contenders, *companions])))
            for part, companions in zip(self.parts, self.companions, strict=True)
        )
        assert isinstance(fewer, JointComparison)
        return replace(fewer, parts=tuple(parts))


def join_comparisons(
    join: Join,
    configs: Sequence[Config],
    comparisons: Sequence[Comparison],
    companions: Sequence[tuple[str, ...]],
) -> JointComparison:
    """Join the rounds of all problems.

    Args:
        configs: contenders besides the vendor, which is one if it was timed on each problem.
        comparisons: each problem's rounds, with contenders and companions.
        companions: for each problem as in `JointComparison`.
    """
    vendor = [VENDOR] if all(VENDOR in comparison.timed for comparison in comparisons) else []
    contenders = (*(config.text for config in configs), *vendor)
    columns = [
        [
            _relative(comparison, contender, baseline)
            for comparison, (baseline, *_) in zip(comparisons, companions, strict=True)
        ]
        for contender in contenders
    ]
    joined = ([join(ratios) for ratios in zip(*column, strict=False)] for column in columns)
    states = tuple(state for comparison in comparisons for state in comparison.states)
    rounds = tuple(zip(*joined, strict=True))
    return JointComparison(contenders, rounds, states, parts=tuple(comparisons), companions=tuple(companions))


def _relative(comparison: Comparison, contender: str, baseline: str) -> list[float]:
    """Return a contender's latency over the baseline's, round by round."""
    return [one / other for one, other in zip(comparison.of(contender), comparison.of(baseline), strict=True)]
