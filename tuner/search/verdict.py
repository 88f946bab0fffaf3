"""From a duel's rounds to an answer: pure statistics, no clock and no device.

Two contenders are compared by their ratio within each round, where drift of the clocks meets both. The estimate is
Hodges and Lehmann's, the median of all pairwise means of the log ratios; its interval holds the ratios that Wilcoxon's
signed-rank test does not reject (Hollander, Wolfe and Chicken, "Nonparametric Statistical Methods", ch. 3). It asks
only that the noise of the two be alike, and a launch that took half or twice its time leaves it alone. In simulation
an order-statistic interval of the median needs 1.5 to 1.8 times the rounds to be as narrow; a bootstrap of the median
1.2 to 1.5 times, and it covers 94 % where it says 95.

Looking at the rounds again and again until they agree makes any interval err more often, most of all for a contender
that is truly 1 % slower: of intervals that said 95 %, 80 % covered it. So each look asks for 99 %, and of those that
are left when the duel ends 99 % cover, and 95 % of that contender's.

With five finalists within 2 % and 1 % noise: mean loss 0.20 %, two runs agree 99.9 % (each's winner is the other's or
among its ties), and name the same winner 93 %. Where the default is one of the five, it is kept until it is shown to
lose more than 1 %: mean loss 0.43 %, and 95 % agree. `tests/test_verdict.py` simulates this in small. To go on until
every contender is shown to be within 1 % or not, whoever it is, takes twice the rounds and changes none of these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import comb, exp, fsum, log, sqrt
from statistics import NormalDist

from tuner.kernels.spec import Config
from tuner.records import VENDOR, Comparison, Interval, Tie, median

CONFIDENCE = 0.95
_CONFIDENCE_OF_A_LOOK = 0.99
EQUIVALENT = 1.01
"""Configs within this of the leader, by the upper bound, are one and the same for a user."""
FEWEST_ROUNDS, _MOST_ROUNDS = 20, 200
"""Twenty tell a ratio to 0.9 % at 1 % noise, two hundred to 0.26 %; they last 0.1 s and 1 s with kernels of 150 us."""
_GROWTH = 0.5
"""New rounds between two looks, by those there are: few looks, and few rounds more than it took."""
FIRST_LOOK = 8
"""With fewer rounds not even the whole range is a 99 % interval, and nothing is shown: the default wins. So the first
look is after these."""


@dataclass(frozen=True)
class Verdict:
    """What the rounds say. Ratios are of latencies, round by round, with their interval."""

    config: Config
    kind: str
    """`tuned`, or `default`: nothing beat the default by more than 1 % with confidence."""
    latency_us: float
    interval_us: Interval
    speedup: float | None
    """Default's latency over the winner's; None where the default did not run."""
    speedup_interval: Interval | None
    default_latency_us: float | None
    vendor_latency_us: float | None
    ties: tuple[Tie, ...]
    """All that were not shown to be more than 1 % slower than the leader, but for the winner; the fastest first."""
    unresolved: bool
    """Somebody was shown to be neither within 1 % of the leader nor beyond."""
    open: bool
    """More rounds might change the answer: somebody may beat it by over 1 %, or be within 1 % and win by the rule."""
    rounds: int
    """How many it rests on."""


def decide(
    comparison: Comparison, configs: Sequence[Config], default: Config | None, shared_bytes: Mapping[Config, int]
) -> Verdict:
    """Who won, by how much, and who is as good.

    The leader is the fastest once each round's common level is taken out. The default wins unless the leader beats it
    by more than 1 %, by the lower bound. Else, among those within 1 % of the leader by the upper bound of their
    slowdown, the one with the least shared memory wins, then the first by canonical text: a rule, so that two runs
    agree. Ties are wider than that: all whose lower bound is within 1 %, so that two runs with different winners find
    each other's among them.

    Args:
        duel: at least one round; its contenders are the texts of `configs`, and perhaps the vendor's kernel.
        configs: the contenders that can win, the default among them if it ran.
        shared_bytes: of each config, for the rule.
    """

    @cache
    def slowdown(config: Config, other: Config) -> tuple[float, Interval]:
        return ratio(comparison, config.text, other.text)

    def rank(config: Config) -> tuple[int, str]:
        return preference(config, shared_bytes.get(config, 0))

    leader = _leader(comparison, configs)
    shown = len(comparison.rounds) >= FIRST_LOOK
    as_good, equivalents = [], []
    for config in configs:
        _, (lower, upper) = slowdown(config, leader)
        if lower <= EQUIVALENT or not shown:
            as_good.append(config)
        if config == leader or (shown and upper <= EQUIVALENT):
            equivalents.append(config)
    if default in as_good:
        winner, kind = default, "default"
    else:
        winner, kind = min(equivalents, key=rank), "tuned"
    ties = [Tie(config, *slowdown(config, winner)) for config in as_good if config != winner]
    undecided = [config for config in as_good if config not in equivalents]
    may_be_faster = [config for config in as_good if slowdown(winner, config)[1][1] > EQUIVALENT]
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
    """The order among configs that are as good: least shared memory, then by text."""
    return shared_bytes, config.text


def rounds_wanted(verdict: Verdict | None) -> int:
    """How many more rounds are worth having before the next look; 0 when more would hardly change the answer.

    Args:
        verdict: of the rounds so far; None before the first.
    """
    done = 0 if verdict is None else verdict.rounds
    if verdict is not None and done >= FEWEST_ROUNDS and not verdict.open:
        return 0
    return until_next_look(done)


def until_next_look(done: int) -> int:
    """Rounds until the next look at a duel that has had so many; 0 when it has had enough."""
    if done < FIRST_LOOK:
        return FIRST_LOOK - done
    return max(0, min(max(FEWEST_ROUNDS - done, int(_GROWTH * done)), _MOST_ROUNDS - done))


def ratio(comparison: Comparison, contender: str, other: str) -> tuple[float, Interval]:
    """The latency of one contender over another's, and its interval; the whole range where there are few rounds."""
    if contender == other:
        return 1.0, (1.0, 1.0)
    logs = sorted(log(a / b) for a, b in zip(comparison.of(contender), comparison.of(other), strict=True))
    sums = sorted([a + b for first, a in enumerate(logs) for b in logs[first:]])  # sorting merges runs: 2 ms of 200
    # How many of the pairwise means are below the true ratio is the statistic of Wilcoxon's test. For 9 rounds and more
    # its normal approximation lies on the safe side of the table.
    n = len(logs)
    z = NormalDist().inv_cdf((1 + _CONFIDENCE_OF_A_LOOK) / 2)
    cut = max(0, int(n * (n + 1) / 4 - z * sqrt(n * (n + 1) * (2 * n + 1) / 24)))
    return exp(median(sums) / 2), (exp(sums[cut] / 2), exp(sums[-1 - cut] / 2))


def interval_of_median(values: Sequence[float]) -> Interval:
    """Encloses the true median with `CONFIDENCE` or more, whatever the values' distribution.

    How many values fall below the true median is binomial with p = 1/2, so two order statistics enclose it with known
    confidence (Conover, "Practical Nonparametric Statistics", ch. 3). The whole range where there are few values.
    """
    ordered = sorted(values)
    n = len(ordered)
    outside = 0.0
    cut = 0
    while cut < n // 2:
        outside += 2 * comb(n, cut) / 2**n
        if outside > 1 - CONFIDENCE:
            break
        cut += 1
    cut = max(0, cut - 1)
    return ordered[cut], ordered[n - 1 - cut]


def _leader(comparison: Comparison, configs: Sequence[Config]) -> Config:
    """Lowest interquartile mean, over the rounds, of log latency less the round's median.

    The median of the latencies themselves names one that is 0.2 % slower when clocks drift by 15 % (here 0.01 %).
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
