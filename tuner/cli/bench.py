"""`tuner bench`: measure answers beside the kernel's default and the vendors: one problem, or a suite."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from tuner.cli import INTERRUPTED
from tuner.cli.bench_rows import line, print_rows
from tuner.cli.drawing import needs_plotly, plot_option, write_page
from tuner.cli.dry_run import dry_run_options, give_plan, refuse_device
from tuner.cli.interrupt import Interrupt
from tuner.cli.notes import TerminalProgress
from tuner.cli.op_commands import OpCommands
from tuner.cli.ops import db_option, gpus_option, json_option, policy_option, shared_option, vendors_option
from tuner.cli.suites import selected_suite, suite_options
from tuner.cli.text import print_json, say
from tuner.db.database import Database
from tuner.db.store import Store, default_database
from tuner.errors import UsageError
from tuner.kernels.spec import Dim, Problem, Signature
from tuner.kernels.vendors import ALL
from tuner.suites.suite import Entry, Suite
from tuner.tuning.bench_file import BenchFile
from tuner.tuning.bench_row import Row
from tuner.tuning.bench_suite import BenchSuite, searching
from tuner.tuning.bench_summary import document
from tuner.tuning.effort import parse_duration
from tuner.tuning.gpu import MeasureOptions
from tuner.tuning.lanes import open_lanes
from tuner.tuning.spread import by_device, ranged_dims
from tuner.tuning.vendors import check_vendors


def _bench(
    suite: Suite,
    *,
    gpu: str,
    replay: str | None,
    policy: str,
    shared: bool,
    vendors: str | None,
    search: float | None,
    out: Path | None,
    plot: Path | None,
    dry_run: bool,
    device_id: str | None,
    db: Database | None,
    as_json: bool,
) -> int:
    if suite.note:
        say(suite.note)
    check_vendors(suite, vendors, replay)
    if dry_run:
        how: dict[str, Any] = {"gpu": gpu, "device_id": device_id, "as_json": as_json}
        return give_plan(suite, searching(search), db=db, verb="measure", compared=search is not None, **how)
    refuse_device(device_id, "a bench")
    draw = None if plot is None else _plot_writer(plot)
    store, file = Store.open(db or default_database()), BenchFile(out)
    options = MeasureOptions(gpu, replay, policy, shared, vendors)
    with TerminalProgress(bars=False) as progress, Interrupt() as interrupt:
        bench = BenchSuite(store, file, search, progress, interrupt.token)
        with open_lanes(suite, store, options, progress) as (measured, lanes):
            total = len(measured.entries)
            rows = bench.measure(
                measured, lanes, lambda row, done: say(f"{done:>{len(str(total))}}/{total}  {line(row)}")
            )
    interrupted = len(rows) < total
    if interrupted:
        goes_on = (
            "the same command continues from there" if out is not None else "with --out it would continue from there"
        )
        say(f"Interrupted after {len(rows)} of {total}; {goes_on}.")
    if as_json:
        print_json(document(measured.name, rows, ranged_dims(suite)))
    elif rows:
        title = f"{measured.name} on {', '.join(by_device(rows))}; ratios are speeds: above 1, ours is faster"
        print_rows(title, rows, ranged=ranged_dims(suite))
    if draw is not None:
        draw(measured.name, rows, ranged_dims(suite))
    return INTERRUPTED if interrupted else 0 if all(row.ok for row in rows) else 1


def _plot_writer(file: Path) -> Callable[[str, Sequence[Row], Mapping[str, Dim]], None]:
    """Return the writer of the plot. Raises UsageError, before anything is measured, if plotly is missing."""
    with needs_plotly():
        from tuner.cli.bench_plot import page
    return lambda name, rows, ranged: write_page(file, page(name, rows, ranged))


def _bench_one(reference: str, signature: Signature, problem: Problem, **options: Any) -> int:
    return _bench(Suite(problem.text, (Entry(reference, signature, problem),)), **options)


def _bench_suite(
    ctx: click.Context, suite: str | None, dtype: str | None, only: tuple[str, ...], list_: bool, **options: Any
) -> int | None:
    chosen = selected_suite(ctx, suite, dtype, only, list_, options["db"])
    if chosen is None:
        return None
    if options["replay"] is not None and len(chosen.entries) > 1:
        raise UsageError(f"--replay names the space of one problem, and {suite} has {len(chosen.entries)}")
    return _bench(chosen, **options)


_OPTIONS: list[click.Parameter] = [
    gpus_option,
    click.Option(["--replay"], metavar="NAME", help="Measure a recorded space instead of a GPU."),
    policy_option,
    shared_option,
    vendors_option(
        ALL,
        "All take part in the same rounds.",
    ),
    click.Option(
        ["--search"],
        type=parse_duration,
        metavar="TIME",
        help="Search problems without an answer first, each for at most this time.",
    ),
    click.Option(
        ["--out"],
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE.json",
        help="Write the rows to a file. Rows that it already has are not measured again.",
    ),
    plot_option(),
    *dry_run_options("the problems, what is stored, and the expected time"),
    db_option,
    json_option,
]

command = OpCommands(
    _bench_one,
    _OPTIONS,
    name="bench",
    help="Compare answers with the default and the vendors, for one problem or a suite.",
    invoke_without_command=True,
    callback=click.pass_context(_bench_suite),
    params=[*suite_options("Measure"), *_OPTIONS],
)
