"""The choice of finalists: configs that enter the interleaved comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

from tuner.records import Measurement
from tuner.search.verdict import VERDICT, preference

Finalists = Callable[[Sequence[Measurement]], Sequence[Measurement]]
"""Chooses the finalists among the measurements that are ok, which come fastest first."""


@dataclass(frozen=True)
class FinalistSettings:
    """Limits of `close_to_best`. The wide margin allows for noise and drift between single measurements."""

    max_slowdown: float = 1.1
    """Highest latency of a finalist, relative to the fastest measurement."""
    near: float = 1.05
    """Highest latency, relative to the fastest, up to which the verdict's preference may choose a finalist."""
    min_count: int = 8
    """Minimum number of finalists, if that many configs ran."""
    max_count: int = 64
    """Maximum number of finalists."""
    first_rounds_us: float = 2e6
    """Time limit of the rounds up to the first look, in us. It leaves fewer finalists of slow kernels."""
    launches: int = 4 * VERDICT.first_look
    """Number of launches of one finalist up to the first look: three in each round, and one that is dropped."""


FINALISTS = FinalistSettings()


def close_to_best(
    ranked: Sequence[Measurement], launch_us: float | None = None, settings: FinalistSettings = FINALISTS
) -> Sequence[Measurement]:
    """Return the measurements close to the fastest.

    If there are too many, half of the places go to the fastest, and half to near ones that the verdict's preference
    ranks first, so that two runs choose the same.

    Args:
        ranked: measurements that are ok, fastest first.
        launch_us: latency of one launch, if `ranked` is by another quantity.
        settings: limits.
    """
    launch_us = launch_us or (ranked[0].latency_us if ranked else inf)
    affordable = int(settings.first_rounds_us / (settings.launches * launch_us))
    most = min(max(affordable, settings.min_count), settings.max_count)
    close = [
        measurement for measurement in ranked if measurement.latency_us <= settings.max_slowdown * ranked[0].latency_us
    ]
    if len(close) <= most:
        return max(close, ranked[: settings.min_count], key=len)
    near = [measurement for measurement in close if measurement.latency_us <= settings.near * ranked[0].latency_us]
    preferred = sorted(near, key=lambda measurement: preference(measurement.config, measurement.shared_bytes or 0))
    return list(dict.fromkeys([*close[: most // 2], *preferred, *close]))[:most]
