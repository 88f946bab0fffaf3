"""`tuner retunes [ID]`: the report of one retune, or the newest ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.box import SIMPLE
from rich.markup import escape
from rich.table import Table

from tuner.cli.grid import Output, print_table
from tuner.cli.ops import db_option, json_option, open_to_read
from tuner.cli.retune_report import give_report, report_option
from tuner.cli.text import print_json
from tuner.cli.whole import Whole
from tuner.db.database import Database
from tuner.db.settings import LARGEST_ID
from tuner.errors import NothingFound, UsageError
from tuner.records.retune import Retune
from tuner.report.retune.report import stored_report
from tuner.report.retune.summary import summarise
from tuner.report.retune.text import moved, outcome
from tuner.report.text import minute_text

_NEWEST = 20
"""Number of retunes in the list."""
_NONE = "no retune is stored; tuner retune makes one"


def _retunes(number: int | None, device_id: str | None, folder: Path | None, db: Database | None, as_json: bool) -> int:
    store = open_to_read(db)
    if number is None:
        if folder is not None:
            raise UsageError("--report writes the report of one retune; name its number, as tuner retunes lists it")
        _list(store.retunes.newest(_NEWEST, device_id), as_json)
        return 0
    retune = store.retunes.get(number)
    if retune is None:
        newest = ", ".join(str(each.id) for each in store.retunes.newest(_NEWEST))
        raise NothingFound(f"there is no retune {number}; {f'newest: {newest}' if newest else _NONE}")
    give_report(stored_report(store, retune), folder, as_json)
    return 0


def _list(retunes: Sequence[Retune], as_json: bool) -> None:
    if as_json:
        print_json([_document(retune) for retune in retunes])
        return
    console = Output()
    if not retunes:
        console.write(_NONE)
        return
    table = Table(box=SIMPLE, pad_edge=False)
    table.add_column("retune", justify="right")
    table.add_column("started UTC", no_wrap=True)
    table.add_column("outcome")
    for name in ("measured", "moved", "replaced", "not reached"):
        table.add_column(name, justify="right")
    table.add_column("device")
    for retune in retunes:
        summary = summarise(retune)
        counts = (summary.measured, len(moved(retune)), len(summary.replaced), summary.left)
        started = minute_text(retune.started_at)
        table.add_row(str(retune.id), started, outcome(summary), *(f"{n:,}" for n in counts), escape(retune.device))
    print_table(table, console, spare=("not reached", "replaced", "measured", "device", "moved"), title="retune")


def _document(retune: Retune) -> dict[str, Any]:
    about = ("id", "device", "status", "started_at", "ended_at")
    return {**{name: getattr(retune, name) for name in about}, "summary": summarise(retune).as_json()}


command = click.Command(
    "retunes",
    callback=_retunes,
    params=[
        click.Argument(["number"], required=False, type=Whole(1, LARGEST_ID), metavar="[ID]"),
        click.Option(["--device", "device_id"], metavar="ID", help="Only retunes on this device."),
        report_option,
        db_option,
        json_option,
    ],
    help=f"Show the report of one retune by its id, or list the newest {_NEWEST}.",
)
