"""Tables of the environment and the card of a retune, then and now, in Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from tuner.records import VERSION_NAMES
from tuner.records.retune import Reading
from tuner.report.retune.escapes import escaped
from tuner.report.retune.report import RetuneReport

_VERSIONS = {**VERSION_NAMES, "policy": "policy", "tuner": "tuner"}
"""Names of versions by their field of a provenance."""


def environment(report: RetuneReport) -> Iterator[str]:
    """Yield a table of the versions then, with the number of answers, and now."""
    then = [finding.then.provenance.as_json() for finding in report.retune.findings if finding.then is not None]
    now = [finding.now.provenance.as_json() for finding in report.retune.findings if finding.now is not None]
    rows = []
    for name, title in _VERSIONS.items():
        stated = report.retune.environment.get(name)
        today = {stated: len(now)} if stated else _counted(each[name] for each in now)
        rows.append((title, _counted(each[name] for each in then), today))
    rows = [row for row in rows if any(row[1:])]
    if rows:
        yield from ("## Environment", "", "| | then | now |", "| --- | --- | --- |")
        for title, before, after in rows:
            yield f"| {title} | {_joined(before)} | {_joined(after)} |"
        if host := report.retune.environment.get("host"):
            yield f"| host | | {escaped(host)} |"
        yield ""


def _counted(values: Iterable[str]) -> dict[str, int]:
    """Return each value with its number, the most frequent first; empty ones are unknown."""
    return dict(Counter(value for value in values if value).most_common())


def _joined(counts: Mapping[str, int]) -> str:
    """Return the values; with their numbers if there are several."""
    if len(counts) == 1:
        return escaped(*counts)
    return ", ".join(f"{escaped(value)} ({count:,})" for value, count in counts.items())


def card(report: RetuneReport) -> Iterator[str]:
    """Yield a table of the ranges of the card's state over all readings."""
    sides = [
        [reading for finding in report.retune.findings if (reading := getattr(finding, when)) is not None]
        for when in ("then", "now")
    ]
    rows = [(title, *(cell(side) for side in sides)) for title, cell in _STATES.items()]
    if rows := [row for row in rows if any(row[1:])]:
        yield from ("## Card", "", "| | then | now |", "| --- | --- | --- |")
        yield from (f"| {title} | {then} | {now} |" for title, then, now in rows)
        yield ""


def _range(field: str, unit: str) -> Callable[[Sequence[Reading]], str]:
    def cell(readings: Sequence[Reading]) -> str:
        states = [getattr(reading.state, field) for reading in readings if reading.state is not None]
        known = [value for value in states if value is not None]
        if not known:
            return ""
        low, high = f"{min(known):,.0f}", f"{max(known):,.0f}"
        return f"{low} {unit}" if low == high else f"{low} - {high} {unit}"

    return cell


def _throttled(readings: Sequence[Reading]) -> str:
    states = [reading.state for reading in readings if reading.state is not None]
    return _numbered(reason for state in states for reason in state.throttled)


def _marks(readings: Sequence[Reading]) -> str:
    return _numbered(mark for reading in readings for mark in reading.marks)


def _numbered(values: Iterable[str]) -> str:
    return ", ".join(f"{escaped(value)} ({count:,})" for value, count in _counted(values).items())


_STATES: dict[str, Callable[[Sequence[Reading]], str]] = {
    "SM clock": _range("sm_mhz", "MHz"),
    "memory clock": _range("memory_mhz", "MHz"),
    "temperature": _range("temperature_c", "°C"),
    "power": _range("power_w", "W"),
    "clocks lowered by": _throttled,
    "marks": _marks,
}


def card_state(reading: Reading | None) -> str:
    """Return `1,980 MHz, 41 °C, 388 W, power_cap`, the card's state in a reading; empty if it is not known."""
    if reading is None or reading.state is None:
        return ""
    state = reading.state
    values = {"MHz": state.sm_mhz, "°C": state.temperature_c, "W": state.power_w}
    parts = [f"{value:,.0f} {unit}" for unit, value in values.items() if value is not None]
    return ", ".join([*parts, *map(escaped, state.throttled)])
