"""The report of a retune as Markdown, for GitHub's job summaries, issues and pull requests."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from tuner.records import VENDOR
from tuner.records.retune import Cause, Finding, Reading
from tuner.report.retune_mermaid import chart
from tuner.report.retune_report import RetuneReport
from tuner.report.retune_summary import DEFAULT
from tuner.report.retune_text import (
    action_counts,
    cause_counts,
    change_cell,
    config_line,
    done_text,
    exit_text,
    latency_cell,
    left_text,
    machine_text,
    one_line,
    outcome,
    plain_text,
    ratio_cell,
    settings_text,
)
from tuner.report.text import short

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|~#$&])")
"""Characters that Markdown, its tables or its formulas would read."""


@dataclass(frozen=True)
class MarkdownSettings:
    """Limits of the Markdown."""

    most_bytes: int = 1000 * 1024
    """Size of the document: a job summary of GitHub has at most 1 MiB."""
    table_share: float = 0.4
    """Share of the size that tables may take."""
    charts: int = 20
    """Number of charts: each is a frame of its own in the page."""
    error_characters: int = 2000
    """Length of an error text."""
    listed: int = 50
    """Number of problems that are listed without a measurement."""


MARKDOWN = MarkdownSettings()


def markdown(report: RetuneReport, settings: MarkdownSettings = MARKDOWN) -> str:
    """Return the document: the outcome, what moved, the environment and the card then and now, and folded details."""
    room = _Room(settings.most_bytes)
    room.add([*_head(report), ""])
    cut = int(settings.most_bytes * (1 - settings.table_share))
    _add_table(room, "What moved", _MOVED, [[*_moved_row(finding)] for finding in report.moved], cut)
    failed = [[_code(short(f.problem)), _escaped(one_line(f.error or f.text))] for f in report.summary.not_measured]
    _add_table(room, "Not measured", ("problem", "error"), failed, cut)
    room.add(_left(report, settings))
    room.add(_environment(report))
    room.add(_card(report))
    _add_details(room, report, settings)
    return "\n".join(room.lines).rstrip("\n") + "\n"


class _Room:
    """Lines of a document up to its size."""

    def __init__(self, most_bytes: int) -> None:
        self.lines: list[str] = []
        self.free = most_bytes - 500  # for the notes on what is left out

    def add(self, lines: Iterable[str], leave: int = 0) -> bool:
        """Add all lines if they fit and `leave` bytes stay free; return whether they did."""
        added = [*lines]
        size = sum(len(line.encode()) + 1 for line in added)
        if self.free - size < leave:
            return False
        self.lines += added
        self.free -= size
        return True


def _head(report: RetuneReport) -> Iterator[str]:
    retune, summary = report.retune, report.summary
    yield f"# Retune {retune.id} on {_escaped(retune.device)}: {outcome(summary)}"
    yield ""
    counts = cause_counts(summary) or "nothing"
    yield f"**{summary.measured:,} of {summary.planned:,} answers measured again: {_escaped(counts)}.**"
    yield ""
    yield from (f"- {line}" for line in _facts(report))


def _facts(report: RetuneReport) -> Iterator[str]:
    retune, summary = report.retune, report.summary
    yield exit_text(summary)
    if actions := action_counts(summary):
        yield f"Done: {_escaped(actions)}."
    if machine := machine_text(summary):
        yield machine
    if summary.left:
        yield left_text(retune, summary)
    ended = "" if retune.ended_at is None else f" to {_minute(retune.ended_at)}"
    yield f"{_minute(retune.started_at)}{ended} UTC, {summary.seconds:,.1f} s of measuring and searching."
    if settings := settings_text(retune):
        yield f"Settings: {_escaped(settings)}."
    if recorded := _recorded(retune.findings):
        yield f"Replayed from recorded spaces, not measured here: {', '.join(map(_code, recorded))}."


def _recorded(findings: Iterable[Finding]) -> list[str]:
    names = {finding.now.provenance.recorded for finding in findings if finding.now is not None}
    return sorted(name for name in names if name is not None)


_MOVED = ("problem", "cause", "then", "now", "change", "x vendor then", "x vendor now", "done")


def _moved_row(finding: Finding) -> Iterator[str]:
    yield _code(short(finding.problem))
    yield _escaped(finding.cause)
    yield _escaped(latency_cell(finding.then))
    yield _escaped(latency_cell(finding.now)) or _escaped(one_line(finding.error, 100))
    yield change_cell(finding)
    for reading in (finding.then, finding.now):
        yield "" if reading is None else ratio_cell(reading.contenders.get(VENDOR))
    yield _escaped(done_text(finding))


def _add_table(room: _Room, title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], leave: int) -> None:
    """Add a table with as many of the rows as leave enough bytes free, and the number of the others."""
    if not rows:
        return
    room.add([f"## {title}", "", f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"])
    shown = 0
    for row in rows:
        if not room.add([f"| {' | '.join(row)} |"], leave):
            break
        shown += 1
    if shown < len(rows):
        room.lines += ["", f"{len(rows) - shown:,} more rows are left out for size; `retune.json` has them."]
    room.lines.append("")


def _left(report: RetuneReport, settings: MarkdownSettings) -> Iterator[str]:
    if not report.left:
        return
    names = [_code(short(problem)) for problem in report.left.values()]
    more = f" and {len(names) - settings.listed:,} more" if len(names) > settings.listed else ""
    yield from ("## Left", "", f"{', '.join(names[: settings.listed])}{more}", "")


def _environment(report: RetuneReport) -> Iterator[str]:
    """Yield a table of the versions then, with the number of answers, and now."""
    then = [finding.then.provenance.as_json() for finding in report.retune.findings if finding.then is not None]
    now = [finding.now.provenance.as_json() for finding in report.retune.findings if finding.now is not None]
    rows = []
    for name, title in _VERSIONS.items():
        today = {report.retune.environment[name]} if report.retune.environment.get(name) else None
        rows.append((title, _counted(each[name] for each in then), today or _counted(each[name] for each in now)))
    rows = [row for row in rows if any(row[1:])]
    if rows:
        yield from ("## Environment", "", "| | then | now |", "| --- | --- | --- |")
        for title, before, after in rows:
            yield f"| {title} | {_joined(before)} | {_joined(after)} |"
        if host := report.retune.environment.get("host"):
            yield f"| host | | {_escaped(host)} |"
        yield ""


_VERSIONS = {
    "triton": "Triton",
    "ptxas": "ptxas",
    "torch": "PyTorch",
    "driver": "driver",
    "policy": "policy",
    "tuner": "tuner",
}


def _counted(values: Iterable[str]) -> dict[str, int]:
    """Return each value with its number, the most frequent first; empty ones are unknown."""
    return dict(Counter(value for value in values if value).most_common())


def _joined(values: Iterable[str]) -> str:
    if isinstance(values, dict) and len(values) > 1:
        return ", ".join(f"{_escaped(value)} ({count:,})" for value, count in values.items())
    return ", ".join(map(_escaped, values))


def _card(report: RetuneReport) -> Iterator[str]:
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
    counts = _counted(reason for state in states for reason in state.throttled)
    return ", ".join(f"{_escaped(reason)} ({count:,})" for reason, count in counts.items())


def _marks(readings: Sequence[Reading]) -> str:
    counts = _counted(mark for reading in readings for mark in reading.marks)
    return ", ".join(f"{_escaped(mark)} ({count:,})" for mark, count in counts.items())


_STATES: dict[str, Callable[[Sequence[Reading]], str]] = {
    "SM clock": _range("sm_mhz", "MHz"),
    "memory clock": _range("memory_mhz", "MHz"),
    "temperature": _range("temperature_c", "°C"),
    "power": _range("power_w", "W"),
    "clocks lowered by": _throttled,
    "marks": _marks,
}


def _add_details(room: _Room, report: RetuneReport, settings: MarkdownSettings) -> None:
    """Add a folded part for each finding that moved or has a long error, until the document is full."""
    long = [finding for finding in report.summary.not_measured if len(finding.error.strip().splitlines()) > 1]
    findings = [*report.moved, *long]
    if not findings or not room.add(["## Details", ""]):
        return
    shown = 0
    for number, finding in enumerate(findings):
        with_chart = number < settings.charts
        if not room.add(_detail(report, finding, settings, with_chart)):
            break
        shown += 1
    if shown < len(findings):
        room.lines.append(f"{len(findings) - shown:,} more are left out for size; `retune.json` has them.")


def _detail(report: RetuneReport, finding: Finding, settings: MarkdownSettings, with_chart: bool) -> Iterator[str]:
    yield f"<details><summary><code>{_html(short(finding.problem))}</code>: {_html(finding.cause)}</summary>"
    yield ""
    if finding.text:
        yield f"{_escaped(plain_text(finding.text))}"
        yield ""
    yield f"- answer {finding.answer_id}: {_code(config_line(finding.config))}"
    yield f"- done: {_escaped(done_text(finding))}"
    if finding.new_config is not None and finding.new_config != finding.config:
        yield f"- new config: {_code(config_line(finding.new_config))}"
    for reason in finding.reasons:
        yield f"- changed: {_escaped(one_line(reason))}"
    yield from ("", *_readings(finding))
    if finding.error:
        yield from (*_block(plain_text(finding.error).strip(), settings.error_characters), "")
    points = report.points(finding) if with_chart and finding.cause is not Cause.NOT_MEASURED else []
    if len(points) > 1:
        drawn, words = chart(points)
        yield from (words, "", "```mermaid", drawn, "```", "")
    yield from ("</details>", "")


def _readings(finding: Finding) -> Iterator[str]:
    """Yield a table of the config's latency and of each contender's latency over it, then and now."""
    readings = (finding.then, finding.now)
    if readings == (None, None):
        return
    roles = dict.fromkeys(role for reading in readings if reading is not None for role in reading.contenders)
    order = {VENDOR: 0, DEFAULT: 1}
    yield from ("| | then | now |", "| --- | --- | --- |")
    yield f"| latency | {' | '.join(_escaped(latency_cell(reading)) for reading in readings)} |"
    for role in sorted(roles, key=lambda role: (order.get(role, 2), role)):
        cells = ["" if reading is None else ratio_cell(reading.contenders.get(role)) for reading in readings]
        yield f"| x {_escaped(role)} | {' | '.join(cells)} |"
    rounds = ["" if reading is None else f"{reading.rounds:,}, {_minute(reading.at)} UTC" for reading in readings]
    yield f"| rounds | {' | '.join(rounds)} |"
    states = [_state(reading) for reading in readings]
    if any(states):
        yield f"| card | {' | '.join(states)} |"
    yield ""


def _state(reading: Reading | None) -> str:
    if reading is None or reading.state is None:
        return ""
    state = reading.state
    values = {"MHz": state.sm_mhz, "°C": state.temperature_c, "W": state.power_w}
    parts = [f"{value:,.0f} {unit}" for unit, value in values.items() if value is not None]
    return ", ".join([*parts, *map(_escaped, state.throttled)])


def _minute(moment: str) -> str:
    return moment[:16].replace("T", " ")


def _escaped(text: str) -> str:
    """Return a text on one line in which Markdown reads nothing, and no name is called by an `@`."""
    line = " ".join(plain_text(text).split())
    return _SPECIAL.sub(r"\\\1", line).replace("@", "@\u200b")


def _code(text: str) -> str:
    """Return a text as a code span, also in a table: there a bar is escaped even in code."""
    line = " ".join(plain_text(text).split()).replace("|", "\\|")
    if "`" not in line:
        return f"`{line}`"
    ticks = "`" * (1 + max(len(run) for run in re.findall("`+", line)))
    return f"{ticks} {line} {ticks}"


def _html(text: str) -> str:
    """Return a text on one line for HTML."""
    line = " ".join(plain_text(text).split())
    return line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _block(text: str, most: int) -> list[str]:
    """Return a text as a block of code with a fence that it does not hold."""
    cut = text if len(text) <= most else f"{text[:most]}\n..."
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", cut)), default=0))
    return [f"{fence}text", cut, fence]
