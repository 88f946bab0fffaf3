"""The speedup of an answer over the vendor's kernel."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.db.store import Store
from tuner.records import VENDOR, Interval, StoredAnswer
from tuner.search.verdict import ratio


@dataclass(frozen=True)
class VendorSpeedup:
    """The vendor's latency over the answer's."""

    ratio: float
    interval: Interval | None = None
    """None if the rounds are not stored; then the ratio is that of the medians."""


def vendor_speedup(store: Store, stored: StoredAnswer | None) -> VendorSpeedup | None:
    """Return the answer's speedup over the vendor, over paired rounds if stored; None if it was not timed."""
    if stored is None:
        return None
    answer, comparison = stored.answer, store.comparison(stored.run_id)
    if comparison is not None and {VENDOR, answer.config.text} <= {*comparison.contenders}:
        return VendorSpeedup(*ratio(comparison, VENDOR, answer.config.text))
    if answer.latency_us is None or answer.vendor_latency_us is None:
        return None
    return VendorSpeedup(answer.vendor_latency_us / answer.latency_us)
