"""Rows of a suite as text: each on a line, all in a table, and their means."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.box import SIMPLE
from rich.markup import escape
from rich.table import Table

from tuner.cli.grid import Output, print_table
from tuner.records import POLICIES, Interval
from tuner.report.default import outcome_of
from tuner.report.text import error_lines, first_line, short, speed_text, times, us_text
from tuner.tuning.bench_row import BARS, Rival, Row, Summary, by_device, summary, vendor_of, vendors_of

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


def print_rows(title: str, rows: Sequence[Row], console: Output | None = None) -> None:
    """Print the table and the summary."""
    console = console or Output()
    console.write(f"[bold]{escape(title)}[/]")
    each_vendor = map(times, _several(rows))
    print_table(_table(rows), console, spare=("GB/s", "TFLOP/s", "± %", "roofline", "timed", *each_vendor))
    for each in _closing(rows):
        console.write(each)


def _table(rows: Sequence[Row]) -> Table:
    table = Table(box=SIMPLE, pad_edge=False)
    apart = len(by_device(rows)) > 1
    for name in ("problem", *["device"] * apart, "timed", "answer"):
        table.add_column(name)
    several = _several(rows)
    vendors = (*map(times, several), times(vendor_of(rows)))
    for name in ("us", "± %", *vendors, "± %", times("default"), "TFLOP/s", "GB/s", "roofline"):
        table.add_column(name, justify="right", no_wrap=True)
    marked = any(row.marks for row in rows)
    if marked:
        table.add_column("")
    for row in rows:
        cells, marks = _cells(row, several), ", ".join(row.marks)
        table.add_row(escape(short(row.problem)), *[row.device] * apart, *cells, *[marks] * marked)
    return table


def _several(rows: Sequence[Row]) -> list[str]:
    """Return the names of the vendors that have columns of their own: all, if some row has several."""
    return vendors_of(rows) if any(len(row.vendors) > 1 for row in rows) else []


def _cells(row: Row, several: Sequence[str]) -> tuple[str, ...]:
    timed = _POLICY_NAMES.get(row.measured_with.get("policy", ""), "")
    if not row.ok:
        return (timed, "[red]failed[/]", *[""] * (8 + len(several)))
    tflops = "" if row.tflops is None else f"{row.tflops:,.1f}"
    share = "" if row.share is None else f"{100 * row.share:.0f} %"
    return (
        *(timed, row.kind),
        *(f"{row.latency_us:,.2f}", _either_way(row.interval_us)),
        *(_coloured(row.vendors.get(name)) for name in several),
        *(_coloured(row.vendor), "" if row.vendor is None else _either_way(row.vendor.speedup_interval)),
        outcome_of(row.default_failure) if row.default is None else f"{row.default.speedup:.3f}",
        *(tflops, f"{row.gb_per_s:,.0f}", share),
    )


def _coloured(rival: Rival | None) -> str:
    if rival is None:
        return ""
    colour = "green" if rival.speedup >= BARS[0] else "yellow" if rival.speedup >= BARS[1] else "red"
    return f"[{colour}]{rival.speedup:.3f}[/]"


def _either_way(interval: Interval) -> str:
    """Return half of an interval's width, in per cent."""
    low, high = interval
    return f"{100 * (high - low) / (high + low):.1f}"


def _closing(rows: Sequence[Row]) -> Iterator[str]:
    totals = summary(rows)
    if totals.rows > 1:
        means = {device: _mean_text(summary(of_it), vendor_of(of_it)) for device, of_it in by_device(rows).items()}
        for device, mean in means.items():
            if mean:
                yield f"geometric mean   {mean}{f' on {device}' if len(means) > 1 else ''}"
    if totals.rows > 1 and totals.worst is not None and totals.worst.vendor is not None:
        speed = speed_text(totals.worst.vendor.speedup, totals.worst.vendor_name)
        yield f"worst            {speed}, {escape(short(totals.worst.problem))}"
        counted = ", ".join(f"{count} below {bar:g}" for bar, count in totals.below.items())
        yield f"beside {vendor_of(rows):9} of {totals.rows - totals.failed}: {counted}"
    yield from _left_out(rows)
    if totals.untuned:
        yield f"untuned          {totals.untuned}: the default is served; --search 60s tunes first"
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


def _mean_text(totals: Summary, vendor: str) -> str:
    each = totals.vendors if len(totals.vendors) > 1 else {}
    means = {vendor: totals.vendor_speedup, **each, "default": totals.speedup}
    shown = [speed_text(mean, name) for name, mean in means.items() if mean is not None]
    if totals.share is not None:
        shown.append(f"{100 * totals.share:.0f} % of the roofline")
    return ", ".join(shown)
