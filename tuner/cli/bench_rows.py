"""Rows of a suite as text: each on a line, all in a table, and their means in another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from rich.box import SIMPLE
from rich.markup import escape
from rich.table import Table

from tuner.cli.grid import Output, print_table
from tuner.cli.spreads import coloured, print_spreads
from tuner.kernels.spec import Dim
from tuner.records import POLICIES, Interval
from tuner.report.default import outcome_of
from tuner.report.text import error_lines, first_line, short, speed_text, times, us_text
from tuner.tuning.bench_row import Row, several_vendors, vendor_of
from tuner.tuning.bench_summary import Summary, summary
from tuner.tuning.spread import Spread, by_device

_POLICY_NAMES = {policy.text: name for name, policy in POLICIES.items()}


def line(row: Row) -> str:
    """Return a row on a line."""
    if not row.ok:
        return f"{short(row.problem)}: failed, {first_line(row.error)}"
    speeds = [] if row.vendor is None else [speed_text(row.vendor.speedup, row.vendor_name)]
    if row.kind == "tuned" and row.default is not None:
        speeds.append(speed_text(row.default.speedup, "default"))
    if row.default_failure:
        speeds.append(f"default {outcome_of(row.default_failure)}")
    return f"{short(row.problem)}: {', '.join([f'{row.kind} {us_text(row.latency_us)}', *speeds])}"


def print_rows(
    title: str,
    rows: Sequence[Row],
    console: Output | None = None,
    ranged: Mapping[str, Dim] = MappingProxyType({}),
) -> None:
    """Print the table of the rows, that of their means, and what is worth a line.

    Args:
        ranged: the dim of each op by whose ranges its rows are grouped.
    """
    console = console or Output()
    console.write(f"[bold]{escape(title)}[/]")
    each_vendor = map(times, several_vendors(rows))
    print_table(_table(rows), console, spare=("GB/s", "TFLOP/s", "± %", "roofline", "timed", *each_vendor))
    if len(rows) > 1 and any(row.vendor is not None for row in rows):
        print_spreads(rows, ranged, lambda of_it: mean_lines(summary(of_it)), console)
    for each in _closing(rows):
        console.write(each)


def _table(rows: Sequence[Row]) -> Table:
    table = Table(box=SIMPLE, pad_edge=False)
    apart, searched = len(by_device(rows)) > 1, any(row.is_searched for row in rows)
    for name in ("problem", *["device"] * apart, "timed", "answer"):
        table.add_column(name)
    best, vendors = times(vendor_of(rows)), several_vendors(rows)
    speeds = (f"untuned {best}", *[f"tuned {best}"] * searched, *map(times, vendors))
    for name in ("us", "± %", *speeds, "± %", *[times("default")] * searched, "TFLOP/s", "GB/s", "roofline"):
        table.add_column(name, justify="right", no_wrap=True)
    marked = any(row.marks for row in rows)
    if marked:
        table.add_column("")
    for row in rows:
        cells = _cells(row, vendors, searched)
        table.add_row(escape(short(row.problem)), *[row.device] * apart, *cells, *[", ".join(row.marks)] * marked)
    return table


def _cells(row: Row, vendors: Sequence[str], searched: bool) -> tuple[str, ...]:
    timed = _POLICY_NAMES.get(row.measured_with.get("policy", ""), "")
    if not row.ok:
        return (timed, "[red]failed[/]", *[""] * (7 + len(vendors) + 2 * searched))
    tflops = "" if row.tflops is None else f"{row.tflops:,.1f}"
    share = "" if row.share is None else f"{100 * row.share:.0f} %"
    tuned = coloured(row.tuned())
    over_default = "" if row.default is None else f"{row.default.speedup:.3f}"
    return (
        *(timed, row.kind),
        *(f"{row.latency_us:,.2f}", _either_way(row.interval_us)),
        outcome_of(row.default_failure) if row.default is None else coloured(row.untuned()),
        *[tuned] * searched,
        *(coloured(row.over(name)) for name in vendors),
        "" if row.vendor is None else _either_way(row.vendor.speedup_interval),
        *[over_default] * searched,
        *(tflops, f"{row.gb_per_s:,.0f}", share),
    )


def _either_way(interval: Interval) -> str:
    """Return half of an interval's width, in per cent."""
    low, high = interval
    return f"{100 * (high - low) / (high + low):.1f}"


def mean_lines(totals: Summary) -> Iterator[tuple[str, Spread]]:
    """Yield the spreads of a summary: untuned and tuned beside each other, over one vendor after the other."""
    for vendor in dict.fromkeys([*totals.untuned, *totals.tuned]):
        for side, spreads in {"untuned": totals.untuned, "tuned": totals.tuned}.items():
            if vendor in spreads:
                yield f"{side} {times(vendor)}", spreads[vendor]
    if totals.of_tuned is not None:
        yield f"untuned {times('tuned')}", totals.of_tuned


def _closing(rows: Sequence[Row]) -> Iterator[str]:
    totals = summary(rows)
    if totals.rows > 1:
        yield from (f"worst untuned    {escape(text)}" for text in map(untuned_text, totals.worst_untuned))
        if totals.share is not None:
            yield f"roofline         {100 * totals.share:.0f} % in the geometric mean"
    yield from _left_out(rows)
    if totals.without_answer:
        yield f"untuned          {totals.without_answer}: the default is served; --search 60s tunes first"
    for row in rows:
        if not row.ok:
            first, *more = error_lines(row.error)
            yield f"[red]failed[/]           {escape(short(row.problem))}: {escape(first)}"
            yield from (f"  {escape(line)}" for line in more)
        elif row.default_failure:
            yield f"[yellow]default[/]          {escape(short(row.problem))}: {escape(row.default_failure)}"
    if recorded := {row.recorded: row.device for row in rows if row.recorded is not None}:
        devices = ", ".join(sorted(set(recorded.values())))
        yield f"[yellow]replayed: measured on {devices}, not here[/]"


def _left_out(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a line for each vendor that is left out and the reason, with the problems if those are not all."""
    reasons: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        for left_out in row.left_out.items():
            reasons.setdefault(left_out, []).append(row)
    for (name, reason), of_it in reasons.items():
        problems = ", ".join(short(row.problem) for row in of_it)
        where = "" if len(of_it) == sum(row.ok for row in rows) else f" ({problems})"
        yield f"left out         {escape(f'{name}: {reason}{where}')}"


def untuned_text(row: Row) -> str:
    """Return `0.871 x torch, softmax 3 x 127 bf16; tuned 1.020`, of a problem whose default ran beside a vendor."""
    tuned = f"; tuned {speedup:.3f}" if (speedup := row.tuned()) is not None else ""
    return f"{speed_text(row.untuned() or 0.0, row.vendor_name)}, {short(row.problem)}{tuned}"
