"""Answers and lines for a terminal: tables on stdout, notes on stderr."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import click
from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table as Grid

from tuner.cli.grid import Output, print_table
from tuner.db.store import Store
from tuner.lookup.table import LookupResult
from tuner.records import IMPORTED, Answer, Measurement, StoredAnswer
from tuner.records.answer import ROLLBACK
from tuner.report.default import default_failure, outcome_of
from tuner.report.explanation import Failure
from tuner.report.text import (
    basis_text,
    config_text,
    evidence_text,
    first_line,
    interval_text,
    minute_text,
    problem_text,
    speed_text,
    us_text,
)
from tuner.report.vendor import VendorSpeedup, vendor_speedup

T = TypeVar("T")

_MARKS = {
    "contended": "other processes used the card while it was measured",
    "throttled": "the card's clocks were throttled while it was measured",
    "launch_bound": "launching an empty kernel takes more than half of this latency",
}


def print_json(document: Any) -> None:
    """Print one JSON document on stdout."""
    click.echo(json.dumps(document, indent=2))


def say(line: str) -> None:
    """Print a line on stderr."""
    Output(stderr=True).write(escape(line))


def failure_lines(failure: Failure) -> tuple[str, str]:
    """Return two lines on one kind of failure: number of configs, kind and an example's error; the example's config."""
    stage = f" ({failure.stage})" if failure.stage else ""
    head = f"{failure.count:7,}  {failure.outcome}{stage}: "
    return (
        f"{head}{escape(first_line(failure.example, None))}",
        f"         {escape(config_text(failure.config))}",
    )


def give(found: LookupResult, store: Store, as_json: bool) -> None:
    """Print a lookup result as one JSON document or as a table."""
    if as_json:
        print_json(found.as_json(store.snapshot))
    else:
        print_found(found, vendor_speedup(store, found.stored), default=default_failure(store, found.stored))


def print_partial(best: Measurement | None, as_json: bool) -> None:
    """Print the fastest single measurement of a search without an answer."""
    if as_json:
        config = None if best is None else dict(best.config)
        print_json({"match": "partial", "config": config, "latency_us": None if best is None else best.latency_us})
    elif best is not None:
        Output().write(escape(f"{config_text(best.config)}  {best.latency_us:.2f} us, best so far"))


def print_found(
    found: LookupResult, vendor: VendorSpeedup | None, console: Output | None = None, default: str = ""
) -> None:
    """Print an answer with its match and evidence; if there is none, the reason and the nearest tuned problems.

    Args:
        default: outcome and error of the default, if it failed.
    """
    console = console or Output()
    if found.stored is None:
        console.write(f"[bold]{escape(problem_text(found.problem))}[/]  on {found.device}")
        console.write(f"  {escape(found.reason)}")
        console.write(f"  to tune it:  [bold]{escape(found.command)}[/]")
        if found.nearest:
            console.write(f"  nearest that are tuned: {escape('; '.join(found.nearest))}")
        return
    answer = found.stored.answer
    device_name = escape(found.stored.provenance.device.name)
    console.write(f"[bold]{escape(problem_text(found.problem))}[/]  on {device_name}")
    console.write(f"  [bold green]{escape(config_text(answer.config))}[/]")
    if basis := basis_text(answer):
        console.write(f"  [yellow]{basis}: the outputs are equal to those of other configs; there is no reference[/]")
    if found.neighbour is not None:
        console.write(f"  [yellow]neighbour: {escape(found.neighbour.text)}[/]")
        console.write(f"  to tune it:  [bold]{escape(found.command)}[/]")
        return
    if found.stale:
        console.write(f"  [yellow]stale: {escape('; '.join(found.stale))}[/]")
    if found.alias is not None:
        console.write(f"  [yellow]{escape(found.alias)} is the same card as {found.device}, where it was tuned[/]")
    print_table(_latencies(answer, vendor, default), console, spare=("95 % interval",))
    if default:
        console.write(f"  [yellow]default: {escape(default)}[/]")
    for line in _notes(found.stored):
        console.write(f"  {escape(line)}")


def _latencies(answer: Answer, vendor: VendorSpeedup | None, default: str) -> Grid:
    """Return a row for each contender with its latency and the answer's speed-up over it, or how the default failed."""
    grid = Grid("", box=SIMPLE, pad_edge=True)
    rows = [(answer.kind, answer.latency_us, interval_text(answer.interval_us, 2), "", "")]
    if answer.kind in ("tuned", ROLLBACK) and answer.default_latency_us is not None and answer.speedup is not None:
        speed = speed_text(answer.speedup, "default"), interval_text(answer.speedup_interval, 3)
        rows.append(("default", answer.default_latency_us, "", *speed))
    if vendor is not None:
        speed = speed_text(vendor.ratio, vendor.name), interval_text(vendor.interval, 3)
        rows.append((vendor.name, answer.vendor_latency_us, "", *speed))
    shown = {"latency": True, "95 % interval": True, "speed-up": any(row[3] for row in rows)}
    for head in [head for head, is_shown in shown.items() if is_shown] + ["95 % interval"] * any(
        row[4] for row in rows
    ):
        grid.add_column(head, justify="right", no_wrap=True)
    for name, latency_us, *others in rows:
        grid.add_row(name, *[us_text(latency_us), *others][: len(grid.columns) - 1])
    if default:
        grid.add_row("default", outcome_of(default))
    return grid


def _notes(stored: StoredAnswer) -> Iterator[str]:
    answer, provenance = stored.answer, stored.provenance
    if answer.kind == "default" and answer.speedup is not None:
        yield "the kernel's default: nothing is faster by more than 1 % with confidence"
    reached = [] if answer.tflops is None else [f"{answer.tflops:,.1f} TFLOP/s"]
    reached += [] if answer.gb_per_s is None else [f"{answer.gb_per_s:,.0f} GB/s"]
    if reached:
        yield ", ".join(reached)
    space = stored.settings.get("space")
    if stored.trials:
        yield f"tried {stored.trials:,} configs{f' of {space:,}' if space else ''}; {_ties(answer)}"
    if answer.evidence.max_error is not None:
        yield evidence_text(answer.evidence)
    for mark in answer.marks:
        yield f"{mark.replace('_', '-')}: {_MARKS.get(mark, '')}"
    environment = provenance.environment
    versions = {"triton": environment.triton, "torch": environment.torch, "driver": environment.driver}
    known = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    verb = {IMPORTED: "imported", ROLLBACK: "restored"}.get(answer.kind, "tuned")
    timed = "" if answer.latency_us is None else f", timed by {provenance.policy}"
    yield f"{verb} {minute_text(stored.created_at)} UTC{timed}"
    yield f"with {known or 'unknown versions'}"
    if stored.imported_from is not None:
        yield f"imported from {stored.imported_from}"
    if stored.restored is not None:
        before = stored.measured_with.environment
        yield f"restored from answer {stored.restored}, which was measured with triton {before.triton}"


def _ties(answer: Answer) -> str:
    if not answer.ties:
        return "no other is as fast"
    word = "other is" if len(answer.ties) == 1 else "others are"
    return f"{len(answer.ties):,} {word} as fast{', but not all are resolved' if answer.unresolved else ''}"


def counted(items: Sequence[T], what: str) -> Iterable[T]:
    """Return the items; on a terminal, with their progress and the time left on a line of stderr."""
    console = Console(stderr=True)
    hidden = len(items) < 2 or not console.is_terminal
    return track(items, what, console=console, transient=True, disable=hidden)
