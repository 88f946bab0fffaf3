"""The outcomes of the problems of one command, in a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from rich.box import SIMPLE
from rich.markup import escape
from rich.table import Table

from tuner.cli import INTERRUPTED
from tuner.cli.grid import Output, print_table
from tuner.cli.spreads import print_spreads
from tuner.cli.text import print_json, say
from tuner.db.store import Store
from tuner.kernels.spec import Dim
from tuner.report.text import basis_text, error_lines, short, times
from tuner.report.vendor import vendor_label
from tuner.suites.suite import Suite
from tuner.tuning.progress import speed_texts
from tuner.tuning.spread import ranged_dims
from tuner.tuning.tuned import Tuned
from tuner.tuning.tuned_summary import document, spreads


def ended(
    suite: Suite, results: Sequence[Tuned], seconds: float, store: Store, as_json: bool, left_out: int = 0
) -> int:
    """Print the outcomes of a command. Return its exit code: 1 if a problem has no answer.

    Args:
        left_out: number of problems that were to be searched, and are not in the suite, since they cannot be measured.
    """
    interrupted = len(results) < len(suite.entries)
    if interrupted:
        say(f"Interrupted after {len(results)} of {len(suite.entries)}; the same command continues from there.")
    ranged = ranged_dims(suite)
    if as_json:
        rows = [tuned.as_json(store.snapshot) for tuned in results]
        speedups = document([tuned for tuned in results if tuned.answer is not None], ranged)
        print_json({"problems": suite.name, "seconds": round(seconds, 1), "speedups": speedups, "rows": rows})
    elif results:
        print_tuned(suite.name, results, seconds, ranged)
    if interrupted:
        return INTERRUPTED
    return 0 if all(tuned.answer for tuned in results) and not left_out else 1


def print_tuned(
    title: str, rows: Sequence[Tuned], seconds: float, ranged: Mapping[str, Dim] = MappingProxyType({})
) -> None:
    """Print a row for each problem, the means of several, the failures, and totals.

    Args:
        ranged: the dim of each op by whose ranges its rows are grouped.
    """
    console = Output()
    devices = ", ".join(_devices(rows))
    console.write(f"[bold]{escape(title)}[/]{f' on {devices}' if devices else ''}")
    print_table(_table(rows), console, spare=("s", "tried"))
    answered = [row for row in rows if row.answer is not None]
    if len(answered) > 1:
        print_spreads(answered, ranged, lambda of_it: spreads(of_it).items(), console)
    for row in rows:
        if row.answer is None:
            first, *more = error_lines(row.error)
            console.write(f"[red]failed[/]  {escape(short(row.problem))}: {escape(first)}")
            for line in more:
                console.write(f"  {escape(line)}")
        elif row.default_failure:
            console.write(f"[yellow]default[/]  {escape(short(row.problem))}: {escape(row.default_failure)}")
    searched = sum(row.searched for row in rows)
    stored = sum(row.answer is not None for row in rows) - searched
    console.write(f"{searched} searched, {stored} as stored; {seconds:,.1f} s")
    if recorded := sorted({row.found.recorded for row in rows if row.found is not None and row.found.recorded}):
        console.write(f"[yellow]replayed from {', '.join(recorded)}: not measured here[/]")


def _devices(rows: Sequence[Tuned]) -> list[str]:
    return sorted({row.device for row in rows if row.device})


def _table(rows: Sequence[Tuned]) -> Table:
    table = Table(box=SIMPLE, pad_edge=False)
    apart = len(_devices(rows)) > 1
    for name in ("problem", *["device"] * apart, "answer"):
        table.add_column(name)
    vendor = vendor_label(row.vendor.name for row in rows if row.vendor is not None)
    for name in ("us", times(vendor), times("default"), "tried", "s"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(escape(short(row.problem)), *[row.device] * apart, *_cells(row))
    return table


def _cells(row: Tuned) -> tuple[str, ...]:
    answer = row.answer
    if answer is None:
        return ("[red]failed[/]", *[""] * 4, f"{row.seconds:.1f}")
    assert row.found is not None
    assert row.found.stored is not None
    seconds = f"{row.seconds:.1f}" if row.searched else ""
    numbers = (
        "" if answer.latency_us is None else f"{answer.latency_us:,.2f}",
        *speed_texts(row).values(),
        f"{row.found.stored.trials:,}",
    )
    label = basis_text(answer)
    kind = f"{answer.kind}, [yellow]{label}[/]" if label else answer.kind
    return (kind, *numbers, seconds)
