"""Outlook of an answer by its kernel's estimate: the best latency that seems possible, and what takes the time.

Pure functions over stored values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import linear_regression

from tuner.kernels.spec import Config, Cost
from tuner.records import Measurement
from tuner.report.explanation import Outlook


@dataclass(frozen=True)
class OutlookSettings:
    """Which measurements correct the estimate."""

    fewest: int = 8
    """Number of measurements below which nothing is said."""
    slowest: float = 2.0
    """Latency over the answer's above which a measurement does not count."""


SETTINGS = OutlookSettings()
POWER = "power"
"""Limit of an answer whose products take the time, at a clock that the power cap lowers."""


def outlook(
    answer: Config,
    latency_us: float,
    measurements: Sequence[Measurement],
    space: Iterable[Config],
    estimate: Callable[[Config], Cost],
    *,
    power_capped: bool = False,
    settings: OutlookSettings = SETTINGS,
) -> Outlook | None:
    """Return the outlook of an answer; None if too few configs were measured.

    The line through the measured latencies by their estimates predicts the latencies of the others.

    Args:
        answer: the config, with its latency in us.
        measurements: those of the search.
        space: the feasible configs.
        estimate: estimates the time of a config.
        power_capped: whether the card was at its power cap.
    """
    near = [m for m in measurements if m.ok and m.latency_us <= settings.slowest * latency_us]
    costs = [log(estimate(m.config).us) for m in near]
    if len(near) < settings.fewest or min(costs) == max(costs):
        return None
    slope, offset = linear_regression(costs, [log(m.latency_us) for m in near])
    tried = {m.config for m in measurements}
    untried = min((config for config in space if config not in tried), key=lambda each: estimate(each).us, default=None)
    best_us = latency_us
    if untried is not None:
        best_us = min(latency_us, exp(offset + max(0.0, slope) * log(estimate(untried).us)))
    cost = estimate(answer)
    limit = POWER if power_capped and cost.limit == "products" else cost.limit
    parts = {name: us * latency_us / cost.us for name, us in cost.parts.items()}
    return Outlook(best_us, untried if best_us < latency_us else None, best_us / latency_us, parts, limit)
