"""`tuner history OP`: all generations of the answer to a problem."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import click
from rich.markup import escape

from tuner.cli.best import kernel_of, lookup_service
from tuner.cli.grid import Output, print_lines
from tuner.cli.op_commands import OpCommands
from tuner.cli.ops import db_option, json_option, open_to_read
from tuner.cli.text import print_json
from tuner.db.database import Database
from tuner.db.store import Store
from tuner.errors import NothingFound
from tuner.kernels.spec import Problem, Signature
from tuner.measure import device
from tuner.records import StoredAnswer
from tuner.report.history import Generation, History, history_of
from tuner.report.text import config_text, latency_text, minute_text, problem_text, speed_text

device_option = click.Option(
    ["--device", "device_id"],
    metavar="ID",
    help="Device id.  [default: the GPU here, else the only device stored]",
)


@dataclass(frozen=True)
class Past:
    """The history of a problem, and the answer that serves a query made here."""

    history: History
    serving: StoredAnswer | None


def past_of(store: Store, reference: str, problem: Problem, device_id: str | None) -> Past:
    """Return the history of a problem on a device.

    Raises:
        NothingFound: No answer was ever stored.
    """
    lookup = lookup_service(store, reference, device.choose("auto"))
    card = lookup.resolve_device(device_id, known={known.id for known in store.cards()})
    query = lookup.query(problem, device=device_id, kernel=lambda: kernel_of(reference))
    found = lookup.find_on(card, query, neighbours=False)
    history = history_of(store, problem, card)
    if not history.generations:
        raise NothingFound(f"no answer was ever stored for {problem.text} on {card}; {found.command}")
    return Past(history, found.stored)


def _history(
    reference: str,
    signature: Signature,
    problem: Problem,
    *,
    device_id: str | None,
    db: Database | None,
    as_json: bool,
) -> int:
    store = open_to_read(db)
    past = past_of(store, reference, problem, device_id)
    if as_json:
        print_json(past.history.as_json(None if past.serving is None else past.serving.id, store.snapshot))
    else:
        console = Output()
        print_lines(_lines(past), console)
    return 0


def _lines(past: Past) -> Iterator[str]:
    history = past.history
    yield f"[bold]{escape(problem_text(history.problem))}[/]  on {history.device}"
    for generation in history.generations:
        stored = generation.stored
        moment = minute_text(stored.created_at)
        yield f"\n[bold]{stored.id}[/]  {moment} UTC  {_outcome(stored)}{_state(past, stored)}"
        yield f"   [green]{escape(config_text(stored.answer.config))}[/]"
        yield from (f"   {escape(line)}" for line in _origin(generation))


def _outcome(stored: StoredAnswer) -> str:
    answer = stored.answer
    faster = "" if answer.speedup is None else f", {speed_text(answer.speedup, 'default')}"
    replayed = "" if stored.provenance.recorded is None else f", replayed from {escape(stored.provenance.recorded)}"
    return f"{answer.kind}, {latency_text(answer)}{faster}{replayed}"


def _state(past: Past, stored: StoredAnswer) -> str:
    pin, states = past.history.pin, list[str]()
    if past.serving is not None and past.serving.id == stored.id:
        states.append("[bold green]serves[/]")
    if stored.forgotten_at is not None:
        states.append(f"[yellow]forgotten {minute_text(stored.forgotten_at)} UTC[/]")
    if pin is not None and pin.answer_id == stored.id:
        states.append(f"[yellow]pinned{escape(pin.because)}[/]")
    return "".join(f"; {state}" for state in states)


def _origin(generation: Generation) -> Iterator[str]:
    stored, finding = generation.stored, generation.finding
    yield from generation.changed
    if stored.restored is not None:
        yield f"restores answer {stored.restored}, measured with Triton {stored.measured_with.environment.triton}"
    if stored.imported_from is not None:
        yield f"imported from {stored.imported_from}"
    if finding is not None:
        yield f"retune {generation.retune}: {finding.cause}, {finding.action}: {finding.text}"


command = OpCommands(
    _history,
    [device_option, db_option, json_option],
    name="history",
    help="Show all generations of the answer to a problem, oldest first.",
)
