"""The speed of an answer relative to the vendor's implementation, and the name that this has."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tuner.db.store import Store
from tuner.records import VENDOR, VENDOR_NAME, Answer, Interval, StoredAnswer, StoredRun
from tuner.search.verdict import ratio


def vendor_label(names: Iterable[str]) -> str:
    """Return the name that all of these vendors have, or `vendor` if they have several."""
    distinct = set(names) or {VENDOR_NAME}
    return distinct.pop() if len(distinct) == 1 else "vendor"


def role_text(role: str, run: StoredRun) -> str:
    """Return a role of a contender of a run as it is shown; the vendor's is its name."""
    return str(run.settings.get(VENDOR, VENDOR_NAME)) if role == VENDOR else role


def stored_vendor(stored: StoredAnswer) -> str:
    """Return the name of the vendor of an answer, whether it was timed or not."""
    return str(stored.settings.get(VENDOR, VENDOR_NAME))


@dataclass(frozen=True)
class VendorSpeedup:
    """The answer's speed relative to the vendor's; above 1, the answer is faster."""

    ratio: float
    interval: Interval | None = None
    """None if the rounds are not stored; then the ratio is that of the medians."""
    name: str = VENDOR_NAME


def vendor_speedup(store: Store, stored: StoredAnswer | None) -> VendorSpeedup | None:
    """Return the answer's speed-up over the vendor, over paired rounds if stored; None if it was not timed."""
    if stored is None:
        return None
    answer, comparison = stored.answer, store.comparison(stored.measured_in)
    name = stored_vendor(stored)
    if comparison is not None and {VENDOR, answer.config.text} <= {*comparison.contenders}:
        return VendorSpeedup(*ratio(comparison, VENDOR, answer.config.text), name)
    of_medians = ratio_of_medians(answer)
    return None if of_medians is None else VendorSpeedup(of_medians, name=name)


def ratio_of_medians(answer: Answer) -> float | None:
    """Return the answer's speed relative to the vendor's by their median latencies; None if one was not timed."""
    if answer.latency_us is None or answer.vendor_latency_us is None:
        return None
    return answer.vendor_latency_us / answer.latency_us
