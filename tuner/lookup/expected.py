"""The expected gain of tuning a problem that has no answer of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from tuner.lookup.ranking import serving
from tuner.lookup.service import LookupService
from tuner.lookup.table import LookupResult
from tuner.records import StoredAnswer


@dataclass(frozen=True)
class GainSettings:
    """Expected gains of problems about which little is known, as shares of the latency."""

    unknown: float = 0.1
    """No answer of the op has a speed-up."""
    least: float = 0.01


SETTINGS = GainSettings()


def expected_gain(found: LookupResult, lookup: LookupService) -> float | None:
    """Return the share of its latency that a problem is expected to lose by tuning: 0.1 is 10 %.

    If a neighbour serves, that is by its expected loss. Else it is by the geometric mean of the speed-ups over the
    default of the nearest problems that have an answer: on the card, or on other cards if it has none.

    Returns:
        None if no such answer has a speed-up.
    """
    if found.neighbour is not None:
        return _share(1 + found.neighbour.expected_loss)
    known = _speedups(found, found.device, lookup)
    if not known:
        known = [speedup for device in lookup.devices for speedup in _speedups(found, device, lookup)]
    return _share(geometric_mean(known)) if known else None


def value_of_tuning(misses: int, gain: float | None, settings: GainSettings = SETTINGS) -> float:
    """Return the value of tuning a missed problem: misses times the expected gain. Only its order counts."""
    return misses * (settings.unknown if gain is None else max(gain, settings.least))


def _speedups(found: LookupResult, device: str, lookup: LookupService) -> list[float]:
    table = lookup.table(found.problem.op, device)
    nearest: Sequence[str] = found.nearest if device == found.device else table.nearest(found.problem)
    answers: list[StoredAnswer] = [serving(several) for text in nearest if (several := table.answers_to(text))]
    return [stored.answer.speedup for stored in answers if stored.answer.speedup]


def _share(speedup: float) -> float:
    """Return the share of the latency that a speed-up saves."""
    return max(0.0, 1 - 1 / speedup)
