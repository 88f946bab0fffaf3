"""`tuner bench`: what would be served, beside the kernel's default and torch: one problem, or a suite of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from tuner import catalog, device
from tuner.bench import Row, summary
from tuner.cli import INTERRUPTED
from tuner.cli.drawing import needs_plotly, plot_option, write_page
from tuner.cli.kept import Kept
from tuner.cli.lanes import spread
from tuner.cli.ops import OpCommands, db_option, json_option, known_signatures, policy_option, shared_option
from tuner.cli.rows import line, print_rows
from tuner.cli.search import duration
from tuner.cli.session import Lane, Session, on_cards, on_recorded
from tuner.cli.show import print_json, say
from tuner.db.database import Database
from tuner.db.store import Store, default_database
from tuner.errors import NoDevice, UsageError
from tuner.kernels.spec import Problem, Signature
from tuner.suite import Entry, Suite, load, names


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
    gpus = [] if replay is not None else _gpus(gpu)
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


def _gpus(chosen: str) -> list[int]:
    """The GPUs that `auto`, `all` or `0,1` name; [] where `auto` finds none."""
    words = [str(index) for index in range(device.count())] if chosen == "all" else chosen.split(",")
    if not words:
        raise NoDevice("--gpu all was asked for, and the driver shows none")
    gpus = list(dict.fromkeys(index for word in words if (index := device.choose(word)) is not None))
    models = sorted({device.describe(index).id for index in gpus})
    if len(models) > 1:
        raise UsageError(f"a suite is measured on cards of one model, not on {', '.join(models)}; name some with --gpu")
    return gpus


def _give(suite: Suite, rows: Sequence[Row], as_json: bool) -> None:
    if as_json:
        print_json({"suite": suite.name, "summary": summary(rows).as_json(), "rows": [row.as_json() for row in rows]})
    elif rows:
        devices = ", ".join(sorted({row.device for row in rows}))
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
    if ctx.invoked_subcommand is not None:
        if any(ctx.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT for name in ctx.params):
            raise UsageError("options of bench come after OP; --suite takes the place of OP")
        return None
    if list_:
        for name in names():
            click.echo(f"{name:12}  {len(load(name, _signature(None)).entries):3} problems")
        return 0
    if suite is None:
        raise UsageError(f"name an OP, or a suite with --suite: {', '.join(names())}, or a file.json")
    wanted = dict(word.split("=", 1) for word in only)
    chosen = load(suite, _signature(options["db"]), dtype).only(wanted)
    if options["replay"] is not None and len(chosen.entries) > 1:
        raise UsageError(f"--replay names the space of one problem, and {suite} has {len(chosen.entries)}")
    return _bench(chosen, **options)


def _signature(db: Database | None) -> Callable[[str], Signature]:
    return lambda reference: catalog.signature(reference, lambda: known_signatures(db))


def _value(ctx: click.Context, param: click.Parameter, words: tuple[str, ...]) -> tuple[str, ...]:
    for word in words:
        if "=" not in word:
            raise UsageError(f"--only takes NAME=VALUE, such as op=gemm or M=16, not {word[:40]!r}")
    return words


_OPTIONS: list[click.Parameter] = [
    click.Option(
        ["--gpu"],
        default="auto",
        show_default=True,
        help="GPUs here: their numbers, such as 0,1, or all; auto: the first.",
    ),
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
    params=[
        click.Option(
            ["--suite"], metavar="NAME|FILE", help="Measure a suite's problems; --list names those that ship."
        ),
        click.Option(["--list", "list_"], is_flag=True, help="Name the suites that ship."),
        click.Option(["--dtype"], metavar="DTYPE", help="Of all problems, in place of the suite's."),
        click.Option(
            ["--only"],
            multiple=True,
            callback=_value,
            metavar="NAME=VALUE",
            help="Problems that have this: op=gemm, M=16.",
        ),
        *_OPTIONS,
    ],
)
