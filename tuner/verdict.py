"""From a duel's rounds to an answer: pure statistics, no clock and no device.

Everything is a median with a distribution-free interval: the number of rounds that fall below the true median is
binomial with p = 1/2, so two order statistics of the rounds enclose it with known confidence, whatever the noise looks
like (Conover, "Practical Nonparametric Statistics", ch. 3). Contenders are compared by their ratio within each round,
where drift of the clocks meets both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb

from tuner.kernels.spec import Config
from tuner.records import VENDOR, Duel, Interval, Tie, median

CONFIDENCE = 0.95
EQUIVALENT = 1.01
"""Configs within this of the leader, by the upper bound, are one and the same for a user."""


@dataclass(frozen=True)
class Verdict:
    """What the rounds say. Ratios are medians over rounds, with their interval."""

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
    unresolved: bool


def decide(
    duel: Duel, configs: Sequence[Config], default: Config | None, shared_bytes: Mapping[Config, int]
) -> Verdict:
    """Who won, by how much, and who is as good.

    The leader has the lowest median. The default wins unless the leader beats it by more than 1 %, by the lower bound.
    Else, among those within 1 % of the leader by the upper bound of their slowdown, the one with the least shared
    memory wins, then the first by canonical text: a rule, so that two runs agree. Ties are all that cannot be told from
    the leader or are within 1 % of it, but for the winner.

    Args:
        duel: at least one round; its contenders are the texts of `configs`, and the vendor's kernel.
        configs: the contenders that can win, the default among them if it ran.
        shared_bytes: of each config, for the rule.
    """
    leader = min(configs, key=lambda config: (median(duel.of(config.text)), config.text))
    slowdowns = {config: ratio(duel, config.text, leader.text)[1] for config in configs}
    equivalents = [config for config, (_, upper) in slowdowns.items() if upper <= EQUIVALENT] or [leader]
    winner, kind = min(equivalents, key=lambda config: (shared_bytes.get(config, 0), config.text)), "tuned"
    if default is not None and default in slowdowns and slowdowns[default][0] <= EQUIVALENT:
        winner, kind = default, "default"
    speedup = ratio(duel, default.text, winner.text) if default is not None and default in slowdowns else None
    as_good = [config for config, (lower, upper) in slowdowns.items() if lower <= 1 or upper <= EQUIVALENT]
    ties = [Tie(config, *ratio(duel, config.text, winner.text)) for config in as_good if config != winner]
    latencies = duel.of(winner.text)
    return Verdict(
        config=winner,
        kind=kind,
        latency_us=median(latencies),
        interval_us=interval_of_median(latencies),
        speedup=None if speedup is None else speedup[0],
        speedup_interval=None if speedup is None else speedup[1],
        default_latency_us=_median_of(duel, None if default is None else default.text),
        vendor_latency_us=_median_of(duel, VENDOR),
        ties=tuple(sorted(ties, key=lambda tie: tie.slowdown)),
        unresolved=any(slowdowns[config][0] <= 1 and slowdowns[config][1] > EQUIVALENT for config in as_good),
    )


def interval_of_median(values: Sequence[float]) -> Interval:
    """Encloses the true median with `CONFIDENCE` or more; the whole range where there are too few values."""
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


def ratio(duel: Duel, contender: str, other: str) -> tuple[float, Interval]:
    """The latency of one contender over another's, round by round, and its interval."""
    ratios = [a / b for a, b in zip(duel.of(contender), duel.of(other), strict=True)]
    return median(ratios), interval_of_median(ratios)


def _median_of(duel: Duel, contender: str | None) -> float | None:
    return median(duel.of(contender)) if contender in duel.contenders else None
