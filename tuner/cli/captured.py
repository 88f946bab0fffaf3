"""`tuner captured`: the captured calls of autotuned kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click
from rich.box import SIMPLE
from rich.markup import escape
from rich.table import Table

from tuner.captured.call import AGREEMENT, Examined
from tuner.captured.problem import problem_of_call
from tuner.cli.grid import Output, print_table
from tuner.cli.ops import db_option, json_option, open_to_read
from tuner.cli.text import print_json
from tuner.db.captured import StoredCall, most_frequent_first
from tuner.db.database import Database
from tuner.db.store import Store
from tuner.errors import NothingFound, UsageError
from tuner.report.text import short

_EMPTY = "no call is captured; tuner run --mode capture SCRIPT captures those of its autotuned kernels"


def _captured(op: str | None, drop: bool, device_id: str | None, db: Database | None, as_json: bool) -> int:
    store = open_to_read(db)
    calls = most_frequent_first(store.captured.all(op, device_id))
    if not calls and (op, device_id) != (None, None):
        raise _none_of(op, device_id, store)
    if drop:
        return _drop(store, calls, as_json)
    tuned = _tuned(store, calls)
    if as_json:
        print_json([_document(stored, tuned[stored.id]) for stored in calls])
    elif not calls:
        Output().write(_EMPTY)
    else:
        _print(calls, tuned)
    return 0


def _none_of(op: str | None, device_id: str | None, store: Store) -> NothingFound:
    """Return the error of an op and a device without captured calls."""
    all_calls = store.captured.all()
    if not all_calls:
        return NothingFound(_EMPTY)
    known = sorted({f"{stored.call.op} on {stored.device}" for stored in all_calls})
    of = "" if op is None else f" of {op[:80]}"
    on = "" if device_id is None else f" on {device_id[:80]}"
    return NothingFound(f"no call{of} is captured{on}; captured are {', '.join(known)}")


def _drop(store: Store, calls: Sequence[StoredCall], as_json: bool) -> int:
    if not calls:
        raise UsageError(_EMPTY)
    dropped = store.captured.drop(stored.id for stored in calls)
    if as_json:
        print_json({"dropped": dropped})
    else:
        Output().write(f"{dropped:,} captured calls removed; their answers stay, and tuner forget retires them")
    return 0


def _tuned(store: Store, calls: Sequence[StoredCall]) -> dict[int, bool]:
    """Return whether each call has an answer in service, by its id."""
    answered = {
        (stored.answer.problem.text, stored.provenance.device.id)
        for op in dict.fromkeys(stored.call.op for stored in calls)
        for stored in store.answers(op=op)
        if stored.provenance.recorded is None
    }
    return {stored.id: (stored.problem, stored.device) in answered for stored in calls}


def _document(stored: StoredCall, tuned: bool) -> Mapping[str, Any]:
    examined, function = stored.call.examined, stored.call.function
    return {
        "op": stored.call.op,
        "problem": problem_of_call(stored.call).values,
        "device": stored.device,
        "function": {"module": function.module, "file": function.file, "name": function.name},
        "configs": len(stored.call.configs),
        "seen": stored.count,
        "first_at": stored.first_at,
        "last_at": stored.last_at,
        "examined": None
        if examined is None
        else {
            "basis": examined.basis,
            "agreeing": examined.agreeing,
            "differing": examined.differing,
            "roles": dict(examined.roles),
        },
        "tuned": tuned,
    }


def _print(calls: Sequence[StoredCall], tuned: Mapping[int, bool]) -> None:
    table = Table(box=SIMPLE, pad_edge=False)
    for name in ("problem", "device"):
        table.add_column(name)
    for name in ("configs", "seen"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("examined", "tuned"):
        table.add_column(name)
    for stored in calls:
        problem, call = problem_of_call(stored.call), stored.call
        numbers = (f"{len(call.configs):,}", f"{stored.count:,}")
        is_tuned = "[green]yes[/]" if tuned[stored.id] else "no"
        table.add_row(escape(short(problem)), stored.device, *numbers, _examined(call.examined), is_tuned)
    print_table(table, Output(), spare=("configs", "device"))


def _examined(examined: Examined | None) -> str:
    if examined is None:
        return "no"
    if examined.basis != AGREEMENT:
        return "has a reference"
    differing = f", {examined.differing:,} differ" if examined.differing else ""
    return f"{examined.agreeing:,} agree{differing}"


command = click.Command(
    "captured",
    callback=_captured,
    params=[
        click.Argument(["op"], required=False),
        click.Option(["--drop"], is_flag=True, help="Remove the listed calls. Their answers stay."),
        click.Option(["--device", "device_id"], metavar="ID", help="Only this device."),
        db_option,
        json_option,
    ],
    help="List the captured calls of autotuned kernels, the most frequent first. tuner search --captured tunes them.",
)
