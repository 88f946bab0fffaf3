"""The report of a retune on the terminal, as JSON, and as files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import click
from rich.box import SIMPLE
from rich.markup import escape
from rich.table import Table

from tuner.cli.grid import Output, print_lines, print_table
from tuner.cli.text import print_json, say
from tuner.errors import UsageError
from tuner.records import VENDOR
from tuner.records.retune import Action, Cause, Finding, Reading
from tuner.report.retune.escapes import one_line, plain_text
from tuner.report.retune.files import write_files
from tuner.report.retune.report import RetuneReport
from tuner.report.retune.text import (
    action_counts,
    cause_counts,
    change_cell,
    done_text,
    exit_text,
    left_text,
    machine_text,
)
from tuner.report.text import count_text, short, times

_COLOURS = {
    Cause.BROKEN: "red",
    Cause.SLOWER_CODE: "red",
    Cause.SLOWER_MACHINE: "red",
    Cause.NOT_MEASURED: "red",
    Cause.ORDER: "yellow",
    Cause.METHOD: "yellow",
    Cause.FASTER_CODE: "green",
    Cause.FASTER_MACHINE: "green",
}


def _checked(ctx: click.Context, param: click.Parameter, folder: Path | None) -> Path | None:
    """Return the folder, which need not exist. Raises UsageError, before measuring, if it cannot be made or written."""
    if folder is None:
        return None
    there = next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        why = "may not be written" if there.is_dir() else "is a file"
        raise UsageError(f"--report names a folder that can be written, and {there} {why}; name another")
    return folder


report_option = click.Option(
    ["--report", "folder"],
    type=click.Path(path_type=Path),
    callback=_checked,
    metavar="DIR",
    help="Write the report as retune.md, retune.json, retune.xml (JUnit) and plots to a folder.",
)


def give_report(report: RetuneReport, folder: Path | None, as_json: bool) -> None:
    """Print a report, or one JSON document, and write its files if there is a folder."""
    if as_json:
        print_json(report.as_json())
    else:
        print_report(report)
    if folder is not None:
        written = write_files(report, folder)
        plots = sum(file.suffix == ".svg" for file in written)
        drawn = f", and {count_text(plots, 'plot')}" if plots else ""
        say(f"Report written to {folder}: Markdown, JSON and JUnit{drawn}.")


def print_report(report: RetuneReport) -> None:
    """Print what moved in a table, what was not measured, and the summary."""
    console = Output()
    retune = report.retune
    console.write(f"[bold]retune {retune.id}[/] on {escape(retune.device)}")
    if report.moved:
        print_table(_table(report), console, spare=(times(VENDOR), "us then", "us now", "change"))
    for finding in (each for each in report.moved if each.error):
        console.write(f"[red]{finding.cause}[/]  {escape(_with_reason(finding))}")
    for finding in report.summary.not_measured:
        console.write(f"[red]not measured[/]  {escape(_with_reason(finding))}")
    print_lines(map(escape, _summary(report)), console)


def finding_line(finding: Finding) -> str:
    """Return a finding on one line: problem, cause, figures, and what was done."""
    figures = one_line(finding.error or finding.text, 200)
    done = "" if finding.action is Action.KEPT and not finding.searched else f"; {done_text(finding)}"
    return f"{plain_text(short(finding.problem))}: {finding.cause}{f', {figures}' if figures else ''}{done}"


def _with_reason(finding: Finding) -> str:
    return f"{plain_text(short(finding.problem))}: {one_line(finding.error or finding.text)}"


def _table(report: RetuneReport) -> Table:
    table = Table(box=SIMPLE, pad_edge=False)
    for name in ("problem", "cause"):
        table.add_column(name)
    for name in ("us then", "us now", "change", times(VENDOR)):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("done")
    for finding in report.moved:
        cause = f"[{_COLOURS[finding.cause]}]{finding.cause}[/]" if finding.cause in _COLOURS else str(finding.cause)
        table.add_row(
            escape(plain_text(short(finding.problem))),
            cause,
            _latency(finding.then),
            _latency(finding.now),
            change_cell(finding),
            _against_vendor(finding),
            escape(done_text(finding, short=True)),
        )
    return table


def _latency(reading: Reading | None) -> str:
    return "" if reading is None else f"{reading.latency_us:,.2f}"


def _against_vendor(finding: Finding) -> str:
    """Return `1.100, now 0.991`: the speed relative to the vendor's then and now."""
    readings = {"": finding.then, "now ": finding.now}
    speeds = [
        f"{when}{reading.contenders[VENDOR].ratio:.3f}"
        for when, reading in readings.items()
        if reading is not None and VENDOR in reading.contenders
    ]
    return ", ".join(speeds)


def _summary(report: RetuneReport) -> Iterator[str]:
    retune, summary = report.retune, report.summary
    counts = cause_counts(summary) or "nothing"
    if summary.planned:
        yield f"{summary.measured:,} of {summary.planned:,} answers measured again: {counts}; {summary.seconds:,.1f} s"
    else:
        yield "no answer is selected: nothing was measured"
    if actions := action_counts(summary):
        yield actions
    if machine := machine_text(summary):
        yield machine
    if summary.left:
        yield left_text(retune, summary)
    yield exit_text(summary)
    recorded = {each.now.provenance.recorded for each in retune.findings if each.now is not None} - {None}
    if recorded:
        yield f"replayed from {', '.join(sorted(map(str, recorded)))}: not measured here"
