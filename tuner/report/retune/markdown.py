"""The report of a retune as Markdown, for GitHub's job summaries, issues and pull requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tuner.records import VENDOR
from tuner.records.retune import DEFAULT, Cause, Finding
from tuner.report.retune.conditions import card, card_state, environment
from tuner.report.retune.escapes import block, code, escaped, html, one_line, plain_text
from tuner.report.retune.mermaid import chart
from tuner.report.retune.report import RetuneReport
from tuner.report.retune.text import (
    action_counts,
    cause_counts,
    change_cell,
    config_line,
    done_text,
    exit_text,
    latency_cell,
    left_text,
    machine_text,
    outcome,
    ratio_cell,
    settings_text,
)
from tuner.report.text import minute_text, short


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
    failed = [[code(short(f.problem)), escaped(one_line(f.error or f.text))] for f in report.summary.not_measured]
    _add_table(room, "Not measured", ("problem", "error"), failed, cut)
    room.add(_left(report, settings))
    room.add(environment(report))
    room.add(card(report))
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
    yield f"# Retune {retune.id} on {escaped(retune.device)}: {outcome(summary)}"
    yield ""
    counts = cause_counts(summary) or "nothing"
    yield f"**{summary.measured:,} of {summary.planned:,} answers measured again: {escaped(counts)}.**"
    yield ""
    yield from (f"- {line}" for line in _facts(report))


def _facts(report: RetuneReport) -> Iterator[str]:
    retune, summary = report.retune, report.summary
    yield exit_text(summary)
    if actions := action_counts(summary):
        yield f"Done: {escaped(actions)}."
    if machine := machine_text(summary):
        yield machine
    if summary.left:
        yield left_text(retune, summary)
    ended = "" if retune.ended_at is None else f" to {minute_text(retune.ended_at)}"
    yield f"{minute_text(retune.started_at)}{ended} UTC, {summary.seconds:,.1f} s of measuring and searching."
    if settings := settings_text(retune):
        yield f"Settings: {escaped(settings)}."
    if recorded := _recorded(retune.findings):
        yield f"Replayed from recorded spaces, not measured here: {', '.join(map(code, recorded))}."


def _recorded(findings: Iterable[Finding]) -> list[str]:
    names = {finding.now.provenance.recorded for finding in findings if finding.now is not None}
    return sorted(name for name in names if name is not None)


_MOVED = ("problem", "cause", "then", "now", "change", "x vendor then", "x vendor now", "done")


def _moved_row(finding: Finding) -> Iterator[str]:
    yield code(short(finding.problem))
    yield escaped(finding.cause)
    yield escaped(latency_cell(finding.then))
    yield escaped(latency_cell(finding.now)) or escaped(one_line(finding.error, 100))
    yield change_cell(finding)
    for reading in (finding.then, finding.now):
        yield "" if reading is None else ratio_cell(reading.contenders.get(VENDOR))
    yield escaped(done_text(finding))


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
    names = [code(short(problem)) for problem in report.left.values()]
    more = f" and {len(names) - settings.listed:,} more" if len(names) > settings.listed else ""
    yield from ("## Not reached", "", f"{', '.join(names[: settings.listed])}{more}", "")


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
    yield f"<details><summary><code>{html(short(finding.problem))}</code>: {html(finding.cause)}</summary>"
    yield ""
    if finding.text:
        yield escaped(finding.text)
        yield ""
    yield f"- answer {finding.answer_id}: {code(config_line(finding.config))}"
    yield f"- done: {escaped(done_text(finding))}"
    if finding.new_config is not None and finding.new_config != finding.config:
        yield f"- new config: {code(config_line(finding.new_config))}"
    for reason in finding.reasons:
        yield f"- changed: {escaped(one_line(reason))}"
    yield from ("", *_readings(finding))
    if finding.error:
        yield from (*block(plain_text(finding.error).strip(), settings.error_characters), "")
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
    yield f"| latency | {' | '.join(escaped(latency_cell(reading)) for reading in readings)} |"
    for role in sorted(roles, key=lambda role: (order.get(role, 2), role)):
        cells = ["" if reading is None else ratio_cell(reading.contenders.get(role)) for reading in readings]
        yield f"| x {escaped(role)} | {' | '.join(cells)} |"
    rounds = ["" if reading is None else f"{reading.rounds:,}, {minute_text(reading.at)} UTC" for reading in readings]
    yield f"| rounds | {' | '.join(rounds)} |"
    states = [card_state(reading) for reading in readings]
    if any(states):
        yield f"| card | {' | '.join(states)} |"
    yield ""
