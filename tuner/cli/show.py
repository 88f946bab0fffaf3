"""`tuner show [RUN]`: one search by its number, or the newest searches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import click
from rich.box import SIMPLE
from rich.console import JustifyMethod
from rich.markup import escape
from rich.table import Table

from tuner.cli.grid import Output, print_lines, print_table
from tuner.cli.ops import db_option, json_option, open_to_read
from tuner.cli.text import failure_lines, print_json
from tuner.cli.whole import Whole
from tuner.db.database import Database
from tuner.db.settings import LARGEST_ID
from tuner.db.store import Store
from tuner.errors import NothingFound
from tuner.lookup.query import Query
from tuner.lookup.table import LookupResult
from tuner.lookup.table import Table as Answers
from tuner.records import Measurement, StoredRun
from tuner.report.default import failure_in
from tuner.report.explain import failures
from tuner.report.text import config_text, latency_text, minute_text, problem_text, seconds_text

_NEWEST, _BEST = 20, 5
_UNFINISHED = 1000
"""Runs without an end that are looked at, at most, the newest first."""
_SILENT = "no sign of life"
"""Status of a run that was probably killed."""
_COLUMNS: Mapping[str, JustifyMethod] = {
    "run": "right",
    "started UTC": "left",
    "status": "left",
    "tried": "right",
    "answer, us": "right",
    "problem": "left",
    "on": "left",
}


def _show(number: int | None, db: Database | None, as_json: bool) -> int:
    store = open_to_read(db)
    if number is None:
        return _list(store, as_json)
    run = store.run(number)
    if run is None:
        newest = ", ".join(str(run.id) for run in store.runs(_NEWEST)) or "none, since no search is stored"
        raise NothingFound(f"there is no run {number}; newest: {newest}")
    measurements = store.known_to(run)
    answer = _answer(store, run)
    if as_json:
        print_json(_document(store, run, measurements, answer))
    else:
        console = Output()
        silent_since = _silent(store).get(run.id, "") if run.ended_at is None else ""
        print_lines(_lines(run, measurements, answer, silent_since), console)
    return 0


def _answer(store: Store, run: StoredRun) -> LookupResult | None:
    """Return the newest answer of a run as a lookup result, or None without one."""
    stored = store.answers_of(run.id)
    device = run.provenance.device.id
    return Answers(device, stored).find(Query(run.problem)) if stored else None


def _silent(store: Store) -> dict[int, str]:
    """Return when runs that were probably killed were last known to run, UTC, by their ids."""
    now = datetime.now(UTC)
    runs = store.overview.unfinished_runs(_UNFINISHED)
    return {each.run.id: each.active_at for each in runs if each.is_silent(now)}


def _list(store: Store, as_json: bool) -> int:
    runs = store.runs(_NEWEST)
    if as_json:
        print_json([run.as_json() for run in runs])
        return 0
    if not runs:
        click.echo("no search is stored; start one with tuner search OP")
        return 0
    table = Table(box=SIMPLE, pad_edge=False)
    for head, justify in _COLUMNS.items():
        table.add_column(head, justify=justify, no_wrap=head != "problem")
    silent = _silent(store)
    for run in runs:
        table.add_row(*_cells(run, _SILENT if run.id in silent else run.status))
    print_table(table, Output(), spare=("on", "started UTC", "tried"), title="problem")
    return 0


def _cells(run: StoredRun, status: str) -> tuple[str, ...]:
    known = run.trials + run.settings.get("known", 0)
    answer = "" if run.answer_us is None else f"{run.answer_us:,.2f}"
    card = f"{run.provenance.device.id}{', replayed' if run.provenance.recorded else ''}"
    about = escape(run.problem.text), escape(card)
    return str(run.id), minute_text(run.started_at)[5:], status, f"{known:,}", answer, *about


def _document(store: Store, run: StoredRun, measurements: Sequence[Measurement], answer: LookupResult | None) -> Any:
    return {
        **run.as_json(),
        "settings": dict(run.settings),
        "measured_with": run.provenance.as_json(),
        "seconds": dict(run.seconds),
        "outcomes": Counter(str(measurement.outcome) for measurement in measurements),
        "failures": [failure.as_json() for failure in failures(measurements)],
        "best": [{"config": dict(m.config), "latency_us": round(m.latency_us, 4)} for m in _best(measurements)],
        "answer": None if answer is None else answer.as_json(store.snapshot),
    }


def _best(measurements: Sequence[Measurement]) -> list[Measurement]:
    return sorted((m for m in measurements if m.ok), key=lambda m: m.latency_us)[:_BEST]


def _lines(
    run: StoredRun, measurements: Sequence[Measurement], answer: LookupResult | None, silent_since: str
) -> Iterator[str]:
    provenance = run.provenance
    card = escape(provenance.device.name)
    yield f"[bold]Run {run.id}[/]  {escape(problem_text(run.problem))}  on {card}"
    if provenance.recorded is not None:
        yield f"  [yellow]replayed from {provenance.recorded}: measured on {card}, not here[/]"
    yield f"  settings: {escape(_settings(run))}"
    if run.settings.get("default") is not None:
        yield f"  default:  {escape(run.settings['default'])}"
    if default := failure_in(run.settings, measurements):
        yield f"            [yellow]{escape(default)}[/]"
    for winner in run.settings.get("winners", ()):
        yield f"  winner:   {escape(winner['config'])}, of answer {winner['answer']}"
    yield f"  software: {escape(_versions(run))}"
    key = f"source {provenance.source}, definition {provenance.definition or 'unknown'}, policy {provenance.policy}"
    yield f"  key:      {key}; tuner {provenance.tuner or 'unknown'}"
    yield f"  ended:    {_end(run, silent_since)}"
    yield f"  time:     {seconds_text(run.seconds)}"
    reused = run.settings.get("known", 0)
    also = f", {reused:,} reused from earlier runs" if reused else ""
    yield f"\n[bold]Configs[/]  {run.trials:,} measured{also}"
    yield f"{sum(m.ok for m in measurements):7,}  ok"
    for failure in failures(measurements):
        yield from failure_lines(failure)
    best = _best(measurements)
    if best:
        yield "\n[bold]Fastest[/]  [dim]of single measurements; the interleaved comparison may prefer another[/]"
    for measurement in best:
        yield f"{measurement.latency_us:10,.2f} us  {escape(config_text(measurement.config))}"
    yield "\n[bold]Answer[/]"
    if answer is None or answer.stored is None:
        yield "  none"
        return
    best_answer = answer.stored.answer
    yield f"  [bold green]{escape(config_text(best_answer.config))}[/]"
    yield f"  {best_answer.kind}, {latency_text(best_answer)}; tuner explain shows why"
    if (forgotten_at := answer.stored.forgotten_at) is not None:
        yield f"  [yellow]forgotten {minute_text(forgotten_at)} UTC: it serves no more[/]"


def _settings(run: StoredRun) -> str:
    shown = {
        name: value for name, value in run.settings.items() if name not in ("default", "default_refused", "winners")
    }
    return ", ".join(f"{name} {'none' if value is None else value}" for name, value in shown.items()) or "not stored"


def _versions(run: StoredRun) -> str:
    environment = run.provenance.environment
    versions = {
        "triton": environment.triton,
        "ptxas": environment.ptxas,
        "torch": environment.torch,
        "driver": environment.driver,
    }
    return ", ".join(f"{name} {version}" for name, version in versions.items() if version)


def _end(run: StoredRun, silent_since: str) -> str:
    if silent_since:
        return f"{_SILENT} since {minute_text(silent_since)} UTC, probably killed; its trials are kept"
    if run.ended_at is None:
        return f"{run.status} since {minute_text(run.started_at)} UTC"
    return f"{run.status}, stopped by {run.stopped}; {minute_text(run.started_at)} to {minute_text(run.ended_at)} UTC"


command = click.Command(
    "show",
    callback=_show,
    params=[
        click.Argument(["number"], required=False, type=Whole(1, LARGEST_ID), metavar="[RUN]"),
        db_option,
        json_option,
    ],
    help="Show one search by its number, or list the newest.",
)
