"""The history of one problem: its latencies by generation and by retune, for plots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tuner.records import VENDOR, Interval, Provenance, StoredAnswer
from tuner.records.retune import DEFAULT, Action, Finding, Reading

MOST_POINTS = 30
"""Number of points of a plot, the newest."""


@dataclass(frozen=True)
class Point:
    """Latencies of one problem at one time, in us."""

    at: str
    """UTC, ISO 8601."""
    kind: str
    """`answer` for a stored generation, `check` for a reading of a retune."""
    latency_us: float
    interval_us: Interval | None
    default_us: float | None
    vendor_us: float | None
    label: str = ""
    """`then`, `now` or `new` for the points of the finding itself."""

    @property
    def day(self) -> str:
        """Month, day and time, as an axis shows them."""
        return self.at[5:16].replace("T", " ")


def points(finding: Finding, generations: Sequence[StoredAnswer] = (), earlier: Sequence[Finding] = ()) -> list[Point]:
    """Return the history of a finding's problem, oldest first, in so far as it was timed by the same policy.

    Args:
        generations: all stored answers of the problem on this card.
        earlier: findings of the same problem in earlier retunes.
    """
    reading = finding.now or finding.then
    timing = None if reading is None else _timing(reading.provenance)
    found = [*_own(finding)]
    own = {finding.new_answer_id, finding.answer_id if finding.then is not None else None}
    own |= {other.new_answer_id for other in earlier if other.action is Action.CONFIRMED}  # of the same rounds
    for stored in generations:
        if stored.id in own or stored.answer.latency_us is None:
            continue
        if timing in (None, _timing(stored.provenance)):
            found.append(_of_answer(stored))
    for other in earlier:
        if other.now is not None and timing == _timing(other.now.provenance):
            found.append(_of_reading(other.now, "check"))
    return sorted(found, key=lambda point: point.at)[-MOST_POINTS:]


def _timing(provenance: Provenance) -> tuple[str, bool]:
    """Return what latencies have in common that can be compared: their policy, and whether they were replayed."""
    return provenance.policy, provenance.recorded is not None


def _own(finding: Finding) -> Iterator[Point]:
    if finding.then is not None:
        yield _of_reading(finding.then, "answer", "then")
    if finding.now is None:
        return
    now = _of_reading(finding.now, "check", "now")
    yield now
    if finding.action is Action.REPLACED and finding.gain:
        interval = finding.gain_interval
        scaled = None if interval is None else (now.latency_us / interval[1], now.latency_us / interval[0])
        new_us = now.latency_us / finding.gain
        yield Point(finding.now.at, "answer", new_us, scaled, now.default_us, now.vendor_us, "new")


def _of_reading(reading: Reading, kind: str, label: str = "") -> Point:
    default, vendor = reading.contenders.get(DEFAULT), reading.contenders.get(VENDOR)
    return Point(
        reading.at,
        kind,
        reading.latency_us,
        reading.interval_us,
        None if default is None else default.latency_us,
        None if vendor is None else vendor.latency_us,
        label,
    )


def _of_answer(stored: StoredAnswer) -> Point:
    answer = stored.answer
    assert answer.latency_us is not None
    default_us = answer.latency_us if answer.kind == "default" else answer.default_latency_us
    return Point(
        stored.created_at, "answer", answer.latency_us, answer.interval_us, default_us, answer.vendor_latency_us
    )
