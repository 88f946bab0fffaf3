"""`tuner bench`: what would be served, beside the kernel's default and torch: one problem, or a suite of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import click

from tuner import catalog, device
from tuner.bench import Row, Subject, bench, summary
from tuner.cli import INTERRUPTED
from tuner.cli.kept import Kept
from tuner.cli.lanes import Stop, spread
from tuner.cli.ops import OpCommands, db_option, json_option, known_signatures, policy_option, shared_option
from tuner.cli.rows import line, print_rows, short
from tuner.cli.search import TRIALS, duration, run_search, stored_answer
from tuner.cli.show import failures_text, print_json, say
from tuner.cli.source import Gpu, Source, on_gpu, replayed
from tuner.db.database import Database
from tuner.db.store import Store, default_database
from tuner.errors import MeasureError, NoDevice, NothingFound, UsageError
from tuner.kernels.spec import Problem, Signature
from tuner.measure import recorded
from tuner.sampler import DEFAULT
from tuner.search import Budget
from tuner.suite import Entry, Suite, load, names


@dataclass(frozen=True)
class _Lane:
    """Where problems are measured, one after the other: a card that is held, or the recorded spaces."""

    device: str
    source: Callable[[Entry, bool], Source]
    """Of a problem; the flag says whether for a search, in which workers may be lost."""


@dataclass(frozen=True)
class _Session:
    """What the problems of a suite share."""

    store: Store
    kept: Kept
    search_s: float | None

    def row(self, lane: _Lane, entry: Entry, stop: Stop) -> Row | None:
        """Of one problem: searched first if it is untuned and that was asked for; None if it was stopped."""
        started = monotonic()
        try:
            source = lane.source(entry, False)
            subject = self._subject(entry, source)
            if subject.answer is None and self.search_s is not None:
                self._search(lane, entry, self.search_s, stop)
                subject = self._subject(entry, source)
            row = self.kept.row(subject)
            if row is not None:
                return row
            measurer = source.measurer()
            try:
                row = bench(subject, measurer, stop=stop)
            finally:
                measurer.close()
        except (NothingFound, MeasureError) as error:
            row = Row(entry.problem, lane.device, "failed", error=str(error))
        return row and replace(row, seconds=monotonic() - started)

    def _subject(self, entry: Entry, source: Source) -> Subject:
        found = stored_answer(self.store, source, entry.problem)
        exact = found.stored is not None and not found.differences
        return Subject(
            entry.problem,
            source.provenance,
            answer=found.stored.answer.config if found.stored is not None and exact else None,
            default=source.default,
            flops=source.flops,
            bytes=source.bytes,
            ceilings=source.ceilings or self.store.ceilings(source.provenance.device),
        )

    def _search(self, lane: _Lane, entry: Entry, seconds: float, stop: Stop) -> None:
        result = run_search(
            lane.source(entry, True),
            self.store,
            entry.signature,
            entry.problem,
            sampler=DEFAULT,
            seed=0,
            budget=Budget(TRIALS, seconds),
            stop=stop,
        )
        if result.verdict is None and not stop():
            say(
                f"{short(entry.problem)}: no answer in {seconds:g} s; {failures_text(result.failures) or 'none failed'}"
            )


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
    session = _Session(Store.open(db or default_database()), Kept(out), search)
    gpus = [] if replay is not None else _gpus(gpu)
    if gpus:
        with _held(gpus, suite.name, session.store, policy, shared) as lanes:
            rows = _measured(session, suite, lanes)
    else:
        suite, lane = _replaying(suite, replay, policy)
        rows = _measured(session, suite, [lane])
    interrupted = len(rows) < len(suite.entries)
    if interrupted:
        goes_on = "the same command goes on from there" if out is not None else "with --out it would go on from there"
        say(f"Interrupted after {len(rows)} of {len(suite.entries)}; {goes_on}.")
    _give(suite, rows, as_json)
    if draw is not None:
        draw(suite.name, rows)
    return INTERRUPTED if interrupted else 0 if all(row.ok for row in rows) else 1


def _measured(session: _Session, suite: Suite, lanes: Sequence[_Lane]) -> list[Row]:
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
    gpus = [index for word in dict.fromkeys(words) if (index := device.choose(word)) is not None]
    models = sorted({device.describe(index).id for index in gpus})
    if len(models) > 1:
        raise UsageError(f"a suite is measured on cards of one model, not on {', '.join(models)}; name some with --gpu")
    return gpus


@contextmanager
def _held(gpus: Sequence[int], what: str, store: Store, policy: str, shared: bool) -> Iterator[list[_Lane]]:
    """The cards, held for the whole suite; their compile pools share the cores."""
    jobs = max(1, (os.cpu_count() or 1) // len(gpus))
    with ExitStack() as stack:
        cards = [Gpu(index, what, shared, jobs) for index in gpus]
        for card in cards:
            stack.callback(card.close)
            card.prepare()  # all of them get ready while we hold one after the other
        for card in cards:
            card.hold()
        cards[0].ceilings(store)  # once for all, as they are of one model
        yield [_on_card(card, store, policy) for card in cards]


def _on_card(card: Gpu, store: Store, policy: str) -> _Lane:
    def source(entry: Entry, searching: bool) -> Source:
        return on_gpu(entry.reference, entry.problem, store, card, policy=policy, spare=searching)

    return _Lane(device.describe(card.index).id, source)


def _replaying(suite: Suite, replay: str | None, policy: str) -> tuple[Suite, _Lane]:
    """The problems that were recorded, and where they are replayed."""
    spaces: dict[str, recorded.Space] = {}
    for entry in suite.entries:
        found = [recorded.load(replay)] if replay is not None else recorded.of_problem(entry.problem)
        if found:
            spaces[entry.problem.text] = found[0]
    entries = [entry for entry in suite.entries if entry.problem.text in spaces]
    if not entries:
        raise NoDevice(
            f"there is no GPU here and no recorded space of {suite.name}; "
            f"what can be replayed: {', '.join(recorded.names()) or 'nothing'}"
        )
    if replay is None:
        left_out = len(suite.entries) - len(entries)
        also = f"; {left_out} that were not recorded are left out" if left_out else ""
        say(f"No GPU here: replaying {', '.join(sorted(space.name for space in spaces.values()))}{also}.")
    return Suite(suite.name, tuple(entries)), _Lane(
        "", lambda entry, searching: replayed(spaces[entry.problem.text], entry.problem, policy)
    )


def _give(suite: Suite, rows: Sequence[Row], as_json: bool) -> None:
    if as_json:
        print_json({"suite": suite.name, "summary": summary(rows).as_json(), "rows": [row.as_json() for row in rows]})
    elif rows:
        devices = ", ".join(sorted({row.device for row in rows}))
        print_rows(f"{suite.name} on {devices}; ratios are speeds: above 1, the answer is faster", rows)


def _drawing(file: Path) -> Callable[[str, Sequence[Row]], None]:
    """What writes the page; found before anything is measured."""
    try:
        from tuner.cli.bench_plot import page
    except ModuleNotFoundError as error:
        raise UsageError(f"--plot needs {error.name}; pip install 'triton-tuner[plot]'") from error

    def draw(name: str, rows: Sequence[Row]) -> None:
        try:
            file.write_text(page(name, rows), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"the page {file} cannot be written: {error.strerror}") from error
        say(f"Drawn in {file}; it opens in any browser, without a network.")

    return draw


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
        help="Number of a GPU here, several such as 0,1, all, or auto: the first.",
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
    click.Option(
        ["--plot"],
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE.html",
        help="Draw it too, as one page that opens without a network.",
    ),
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
