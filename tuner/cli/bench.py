"""`tuner bench`: what would be served, beside the kernel's default and torch: one problem, or a suite of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from tuner.cli import INTERRUPTED
from tuner.cli.bench_rows import line, print_rows
from tuner.cli.drawing import needs_plotly, plot_option, write_page
from tuner.cli.ops import OpCommands, db_option, gpus_option, json_option, policy_option, shared_option
from tuner.cli.suites import asked_suite, suite_options
from tuner.cli.text import print_json, say
from tuner.db.database import Database
from tuner.db.store import Store, default_database
from tuner.errors import UsageError
from tuner.kernels.spec import Problem, Signature
from tuner.suites.suite import Entry, Suite
from tuner.tuning.bench import Row, by_device, document
from tuner.tuning.kept_rows import Kept
from tuner.tuning.lanes import spread
from tuner.tuning.run import duration
from tuner.tuning.session import Lane, Session, chosen_gpus, on_cards, on_recorded


def _bench(
    suite: Suite,
    *,
    gpu: str,
    replay: str | None,
    policy: str,
    shared: bool,
    search: float | None,
    out: Path | None,
    plot: Path | None,
    db: Database | None,
    as_json: bool,
) -> int:
    draw = None if plot is None else _drawing(plot)
    session = Session(Store.open(db or default_database()), Kept(out), search)
    gpus = [] if replay is not None else chosen_gpus(gpu)
    if gpus:
        with on_cards(gpus, suite.name, session.store, policy, shared) as lanes:
            rows = _measured(session, suite, lanes)
    else:
        suite, lane = on_recorded(suite, replay, policy)
        rows = _measured(session, suite, [lane])
    interrupted = len(rows) < len(suite.entries)
    if interrupted:
        goes_on = "the same command goes on from there" if out is not None else "with --out it would go on from there"
        say(f"Interrupted after {len(rows)} of {len(suite.entries)}; {goes_on}.")
    _give(suite, rows, as_json)
    if draw is not None:
        draw(suite.name, rows)
    return INTERRUPTED if interrupted else 0 if all(row.ok for row in rows) else 1


def _measured(session: Session, suite: Suite, lanes: Sequence[Lane]) -> list[Row]:
    """The rows in the suite's order; fewer than there are problems where it was interrupted."""
    rows: dict[str, Row] = {}
    total = len(suite.entries)

    def on_row(row: Row) -> None:
        rows[row.problem.text] = row
        session.kept.keep(row)
        say(f"{len(rows):>{len(str(total))}}/{total}  {line(row)}")

    spread(suite.entries, [partial(session.row, lane) for lane in lanes], on_row)
    return [rows[entry.problem.text] for entry in suite.entries if entry.problem.text in rows]


def _give(suite: Suite, rows: Sequence[Row], as_json: bool) -> None:
    if as_json:
        print_json(document(suite.name, rows))
    elif rows:
        devices = ", ".join(by_device(rows))
        print_rows(f"{suite.name} on {devices}; ratios are speeds: above 1, the answer is faster", rows)


def _drawing(file: Path) -> Callable[[str, Sequence[Row]], None]:
    """What writes the page; found before anything is measured."""
    with needs_plotly():
        from tuner.cli.bench_plot import page
    return lambda name, rows: write_page(file, page(name, rows))


def _bench_one(reference: str, signature: Signature, problem: Problem, **options: Any) -> int:
    return _bench(Suite(problem.text, (Entry(reference, signature, problem),)), **options)


def _bench_suite(
    ctx: click.Context, suite: str | None, dtype: str | None, only: tuple[str, ...], list_: bool, **options: Any
) -> int | None:
    chosen = asked_suite(ctx, suite, dtype, only, list_, options["db"])
    if chosen is None:
        return None
    if options["replay"] is not None and len(chosen.entries) > 1:
        raise UsageError(f"--replay names the space of one problem, and {suite} has {len(chosen.entries)}")
    return _bench(chosen, **options)


_OPTIONS: list[click.Parameter] = [
    gpus_option,
    click.Option(["--replay"], metavar="NAME", help="Take a recorded space instead of a GPU."),
    policy_option,
    shared_option,
    click.Option(
        ["--search"], type=duration, metavar="TIME", help="Search what has no answer yet, each for at most so long."
    ),
    click.Option(
        ["--out"],
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE.json",
        help="Keep the rows, and measure no row again that it has.",
    ),
    plot_option(),
    db_option,
    json_option,
]

command = OpCommands(
    _bench_one,
    _OPTIONS,
    name="bench",
    help="Measure answers beside the default and torch: one problem, or a suite.",
    invoke_without_command=True,
    callback=click.pass_context(_bench_suite),
    params=[*suite_options("Measure"), *_OPTIONS],
)
