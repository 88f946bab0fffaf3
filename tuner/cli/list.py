"""`tuner list`: everything that serves."""

from __future__ import annotations

from pathlib import Path

import click
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table as Grid

from tuner.cli.ops import db_option, json_option
from tuner.cli.show import config_text, print_json
from tuner.db.store import Store, default_path
from tuner.lookup import Asked, Table
from tuner.records import StoredAnswer


def _list(op: str | None, device: str | None, db: Path | None, as_json: bool) -> int:
    store = Store.open(db or default_path())
    serving: dict[tuple[str, str], StoredAnswer] = {}
    for stored in store.answers(op=op, device=device):
        key = (stored.provenance.device.id, stored.answer.problem.text)
        found = Table(key[0], [stored, *filter(None, [serving.get(key)])]).find(Asked(stored.answer.problem))
        assert found.stored is not None
        serving[key] = found.stored
    if as_json:
        snapshot = store.snapshot
        rows = [
            Table(device_id, [stored]).find(Asked(stored.answer.problem)).as_json(snapshot)
            for (device_id, _), stored in sorted(serving.items())
        ]
        print_json(rows)
        return 0
    grid = Grid("problem", "device", "config", "latency", "over default", "tuned", box=SIMPLE)
    for (device_id, text), stored in sorted(serving.items()):
        answer = stored.answer
        grid.add_row(
            text,
            f"{device_id}{' (replayed)' if stored.provenance.recorded else ''}",
            config_text(answer.config),
            f"{answer.latency_us:,.2f} us",
            "" if answer.speedup is None else f"{answer.speedup:.3f}x",
            stored.created_at[:16].replace("T", " "),
        )
    nothing = "nothing is stored yet; tuner search OP finds something to store"
    Console(highlight=False).print(grid if serving else nothing)
    return 0


command = click.Command(
    "list",
    callback=_list,
    params=[
        click.Argument(["op"], required=False),
        click.Option(["--device"], metavar="ID", help="Only this device."),
        db_option,
        json_option,
    ],
    help="List the answers that are stored.",
)
