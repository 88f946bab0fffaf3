"""The verdict on a comparison's rounds. Pure statistics, no clock and no device.

Two contenders are compared by their ratio within each round, so that drift of the clocks cancels. The estimate is the
Hodges-Lehmann estimator, the median of all pairwise means of the log ratios; its interval holds the ratios that
Wilcoxon's signed-rank test does not reject (Hollander, Wolfe and Chicken, "Nonparametric Statistical Methods", ch. 3).
It assumes only that both contenders have noise of the same distribution, and tolerates outliers.

Repeated looks at the rounds make an interval err more often. Each look therefore uses 99 % intervals; of those at the
last look, at least 95 % cover. `tests/search/test_verdict.py` simulates this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import comb, exp, fsum, log, sqrt
from statistics import NormalDist

from tuner.kernels.spec import Config
from tuner.records import VENDOR, Comparison, Interval, Tie, median


@dataclass(frozen=True)
class VerdictSettings:
    """Limits of the verdict. docs/studies/search.md has their simulations."""

    equivalent: float = 1.01
    """Highest slowdown of a config that is as good as the leader, and of a default that is kept."""
    median_confidence: float = 0.95
    """Confidence of the interval of a median latency."""
    ratio_confidence: float = 0.99
    """Confidence of the interval of a ratio, higher since rounds are looked at repeatedly."""
    first_look: int = 8
    """Number of rounds before the first verdict; with fewer, even the whole range is less than a 99 % interval."""
    min_rounds: int = 20
    """Minimum number of rounds; at 1 % noise they give a ratio to 0.9 %."""
    max_rounds: int = 200
    """Maximum number of rounds; at 1 % noise they give a ratio to 0.26 %."""
    growth: float = 0.5
    """New rounds between two looks, as a share of those there are."""


VERDICT = VerdictSettings()


@dataclass(frozen=True)
class Verdict:
    """The winner of an interleaved comparison and its evidence. Ratios are of latencies within rounds."""

    config: Config
    kind: str
    """`tuned`, or `default` if nothing beat the default by more than 1 % with confidence."""
    latency_us: float
    interval_us: Interval
    speedup: float | None
    """Default's latency over the winner's; None if the default did not run."""
    speedup_interval: Interval | None
    default_latency_us: float | None
    vendor_latency_us: float | None
    ties: tuple[Tie, ...]
    """Other configs that were not shown to be more than 1 % slower than the leader, fastest first."""
    unresolved: bool
    """True if some contender was shown to be neither within 1 % of the leader nor beyond."""
    open: bool
    """True if more rounds might change the answer."""
    rounds: int
    """Number of rounds that it rests on."""


def decide(
    comparison: Comparison,
    configs: Sequence[Config],
    default: Config | None,
    shared_bytes: Mapping[Config, int],
    winner: Config | None = None,
) -> Verdict:
    """Return the winner, its speedup and its ties.

    The leader is the fastest after each round's common level is subtracted. The default wins unless the leader beats it
    by more than 1 %, by the lower bound. Else, among the configs within 1 % of the leader by the upper bound of their
    slowdown, the one with the least shared memory wins, then the first by canonical text, so that two runs agree. Ties
    are all configs whose lower bound is within 1 %, so that two runs with different winners are in each other's ties.

    Args:
        comparison: at least one round; its contenders are the texts of `configs`, and perhaps the vendor.
        configs: the contenders that can win, the default among them if it ran.
        default: the kernel's default; None if the card cannot run it.
        shared_bytes: shared memory of each config, in bytes.
        winner: the config that is kept in any case; None chooses.
    """

    @cache
    def slowdown(config: Config, other: Config) -> tuple[float, Interval]:
        return ratio(comparison, config.text, other.text)

    def rank(config: Config) -> tuple[int, str]:
        return preference(config, shared_bytes.get(config, 0))

    leader = _leader(comparison, configs)
    shown = len(comparison.rounds) >= VERDICT.first_look
    as_good, equivalents = [], []
    for config in configs:
        _, (lower, upper) = slowdown(config, leader)
        if lower <= VERDICT.equivalent or not shown:
            as_good.append(config)
        if config == leader or (shown and upper <= VERDICT.equivalent):
            equivalents.append(config)
    if winner is None:
        winner = default if default in as_good else min(equivalents, key=rank)
    assert winner is not None
    kind = "default" if winner == default else "tuned"
    ties = [Tie(config, *slowdown(config, winner)) for config in as_good if config != winner]
    undecided = [config for config in as_good if config not in equivalents]
    may_be_faster = [config for config in as_good if slowdown(winner, config)[1][1] > VERDICT.equivalent]
    may_be_preferred = [config for config in undecided if kind == "tuned" and rank(config) < rank(winner)]
    ran = default is not None and default in configs
    speedup, speedup_interval = slowdown(default, winner) if ran else (None, None)
    latencies = comparison.of(winner.text)
    return Verdict(
        config=winner,
        kind=kind,
        latency_us=median(latencies),
        interval_us=interval_of_median(latencies),
        speedup=speedup,
        speedup_interval=speedup_interval,
        default_latency_us=_median_of(comparison, None if default is None else default.text),
        vendor_latency_us=_median_of(comparison, VENDOR),
        ties=tuple(sorted(ties, key=lambda tie: tie.slowdown)),
        unresolved=bool(undecided) or (not shown and len(configs) > 1),
        open=bool(may_be_faster or may_be_preferred) or (not shown and len(configs) > 1),
        rounds=len(comparison.rounds),
    )


def preference(config: Config, shared_bytes: int) -> tuple[int, str]:
    """Return the sort key among equivalent configs: shared memory, then canonical text."""
    return shared_bytes, config.text


def rounds_wanted(verdict: Verdict | None) -> int:
    """Return the number of rounds until the next look; 0 if more rounds would hardly change the answer.

    Args:
        verdict: on the rounds so far; None before the first.
    """
    done = 0 if verdict is None else verdict.rounds
    if verdict is not None and done >= VERDICT.min_rounds and not verdict.open:
        return 0
    return until_next_look(done)


def until_next_look(done: int) -> int:
    """Return the number of rounds from `done` to the next look; 0 at the maximum."""
    if done < VERDICT.first_look:
        return VERDICT.first_look - done
    return max(0, min(max(VERDICT.min_rounds - done, int(VERDICT.growth * done)), VERDICT.max_rounds - done))


def ratio(comparison: Comparison, contender: str, other: str) -> tuple[float, Interval]:
    """Return the latency of one contender over another's, and its interval: the whole range if rounds are few."""
    if contender == other:
        return 1.0, (1.0, 1.0)
    logs = sorted(log(a / b) for a, b in zip(comparison.of(contender), comparison.of(other), strict=True))
    sums = sorted([a + b for first, a in enumerate(logs) for b in logs[first:]])  # sorting merges runs: 2 ms of 200
    # The number of pairwise means below the true ratio is the statistic of Wilcoxon's test. From 9 rounds on, its
    # normal approximation is on the safe side of the table.
    n = len(logs)
    z = NormalDist().inv_cdf((1 + VERDICT.ratio_confidence) / 2)
    cut = max(0, int(n * (n + 1) / 4 - z * sqrt(n * (n + 1) * (2 * n + 1) / 24)))
    return exp(median(sums) / 2), (exp(sums[cut] / 2), exp(sums[-1 - cut] / 2))


def interval_of_median(values: Sequence[float]) -> Interval:
    """Return the 95 % interval of the median, for values of any distribution: the whole range if they are few.

    The number of values below the true median is binomial with p = 1/2, so two order statistics enclose it with known
    confidence (Conover, "Practical Nonparametric Statistics", ch. 3).
    """
    ordered = sorted(values)
    n = len(ordered)
    outside = 0.0
    cut = 0
    while cut < n // 2:
        outside += 2 * comb(n, cut) / 2**n
        if outside > 1 - VERDICT.median_confidence:
            break
        cut += 1
    cut = max(0, cut - 1)
    return ordered[cut], ordered[n - 1 - cut]


def _leader(comparison: Comparison, configs: Sequence[Config]) -> Config:
    """Return the config with the lowest interquartile mean of log latency minus the round's median.

    Medians of the latencies themselves err more when clocks drift.
    """
    logs = {config: [log(latency) for latency in comparison.of(config.text)] for config in configs}
    levels = [median(latencies) for latencies in zip(*logs.values(), strict=True)]
    cut = len(levels) // 4

    def centre(config: Config) -> float:
        ordered = sorted(latency - level for latency, level in zip(logs[config], levels, strict=True))
        return fsum(ordered[cut : len(ordered) - cut])

    return min(configs, key=lambda config: (centre(config), config.text))


def _median_of(comparison: Comparison, contender: str | None) -> float | None:
    return median(comparison.of(contender)) if contender in comparison.contenders else None
