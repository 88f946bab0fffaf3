"""How many times as long as an answer torch takes."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.db.store import Store
from tuner.records import VENDOR, Interval, StoredAnswer
from tuner.search.verdict import ratio


@dataclass(frozen=True)
class Beside:
    """Torch's latency over the answer's."""

    ratio: float
    interval: Interval | None = None
    """None where the rounds are not stored, and the ratio is that of the medians."""


def torch_beside(store: Store, stored: StoredAnswer | None) -> Beside | None:
    """By the rounds in which both met, as far as they are stored; None where torch was not timed."""
    if stored is None:
        return None
    answer, comparison = stored.answer, store.comparison(stored.run_id)
    if comparison is not None and {VENDOR, answer.config.text} <= {*comparison.contenders}:
        return Beside(*ratio(comparison, VENDOR, answer.config.text))
    if answer.latency_us is None or answer.vendor_latency_us is None:
        return None
    return Beside(answer.vendor_latency_us / answer.latency_us)
