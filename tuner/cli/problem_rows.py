"""What came of the problems of one command, for a reader: one on a line as they come, all in a table in the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tuner.cli.bench_rows import short
from tuner.cli.grid import print_table
from tuner.cli.text import first_line, us_text
from tuner.kernels.spec import Problem
from tuner.lookup.table import LookupResult
from tuner.records import Answer
from tuner.report.vendor import Beside
from tuner.search.loop import Result


@dataclass(frozen=True)
class Searched:
    """What came of one problem: an answer, with the search that gave it or without, as it was stored; or an error."""

    problem: Problem
    found: LookupResult | None = None
    result: Result | None = None
    error: str = ""
    seconds: float = 0.0
    """What it added to the command's time."""
    torch: Beside | None = None

    def after(self, seconds: float) -> Searched:
        """The same, so long after the one before."""
        return replace(self, seconds=seconds)

    @property
    def answer(self) -> Answer | None:
        stored = None if self.found is None else self.found.stored
        return None if stored is None else stored.answer

    @property
    def answered(self) -> bool:
        return self.answer is not None

    def as_json(self, snapshot: str) -> dict[str, Any]:
        """What `tuner best --json` gives, and how it came about."""
        seconds = {"seconds": round(self.seconds, 2)}
        if self.found is None:
            head = {"op": self.problem.op, "problem": self.problem.values}
            return {**head, "match": "failed", "error": self.error, "searched": True, "tried": None, **seconds}
        tried = None if self.found.stored is None else self.found.stored.trials
        return {**self.found.as_json(snapshot), "searched": self.result is not None, "tried": tried, **seconds}


def line(row: Searched) -> str:
    """A row as it comes."""
    answer = row.answer
    if answer is None:
        return f"{short(row.problem)}: failed, {first_line(row.error)}"
    told = [f"{answer.kind} {us_text(answer.latency_us)}"]
    told += [f"{ratio} x {name}" for name, ratio in _ratios(answer, row.torch).items() if ratio]
    told.append("as stored" if row.result is None else f"{row.seconds:.1f} s")
    return f"{short(row.problem)}: {', '.join(told)}"


def print_searched(title: str, rows: Sequence[Searched], seconds: float) -> None:
    """The table, and what is to be said of it."""
    console = Console(highlight=False, soft_wrap=True)
    devices = ", ".join(_devices(rows))
    console.print(f"[bold]{escape(title)}[/]{f' on {devices}' if devices else ''}")
    print_table(_table(rows), console, spare=("s", "tried"))
    for row in rows:
        if not row.answered:
            console.print(f"[red]failed[/]  {short(row.problem)}: {escape(first_line(row.error))}")
    searched = sum(row.result is not None for row in rows)
    stored = sum(row.answered for row in rows) - searched
    console.print(f"{searched} searched, {stored} as stored; {seconds:,.1f} s")
    if recorded := sorted({row.found.recorded for row in rows if row.found is not None and row.found.recorded}):
        console.print(f"[yellow]replayed from {', '.join(recorded)}: not measured here[/]")


def _devices(rows: Sequence[Searched]) -> list[str]:
    return sorted({row.found.device for row in rows if row.found is not None})


def _table(rows: Sequence[Searched]) -> Table:
    table = Table(box=SIMPLE, pad_edge=False)
    apart = len(_devices(rows)) > 1
    for name in ("problem", *["device"] * apart, "answer"):
        table.add_column(name)
    for name in ("us", "x torch", "x default", "tried", "s"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        device = "" if row.found is None else row.found.device
        table.add_row(short(row.problem), *[device] * apart, *_cells(row))
    return table


def _cells(row: Searched) -> tuple[str, ...]:
    answer = row.answer
    if answer is None:
        return ("[red]failed[/]", *[""] * 4, f"{row.seconds:.1f}")
    assert row.found is not None
    assert row.found.stored is not None
    seconds = "" if row.result is None else f"{row.seconds:.1f}"
    numbers = (
        "" if answer.latency_us is None else f"{answer.latency_us:,.2f}",
        *_ratios(answer, row.torch).values(),
        f"{row.found.stored.trials:,}",
    )
    return (answer.kind, *numbers, seconds)


def _ratios(answer: Answer, torch: Beside | None) -> dict[str, str]:
    """Speeds over its rivals': above 1, the answer is faster. Empty where there was no rival."""
    return {
        "torch": "" if torch is None else f"{torch.ratio:.3f}",
        "default": "" if answer.speedup is None else f"{answer.speedup:.3f}",
    }
