"""`tuner list`: everything that serves."""

from __future__ import annotations

import click
from rich.console import Console
from rich.markup import escape

from tuner.cli.ops import EMPTY, db_option, json_option, known_signatures, open_to_read
from tuner.cli.text import config_text, latency_text, print_json, problem_text
from tuner.db.database import Database
from tuner.errors import UnknownName
from tuner.lookup.table import Query, Table, device_asked, serving
from tuner.records import StoredAnswer


def _list(op: str | None, device: str | None, db: Database | None, as_json: bool) -> int:
    store = open_to_read(db)
    if op is not None and op not in (known := known_signatures(db)):
        raise UnknownName(f"no op is called {op[:80]!r}; known are {', '.join(sorted(known))}")
    if device is not None:
        device_asked(device, None, store.devices())
    answers: dict[tuple[str, str], list[StoredAnswer]] = {}
    for stored in store.answers(op=op, device=device):
        answers.setdefault((stored.provenance.device.id, stored.answer.problem.text), []).append(stored)
    serve = {key: serving(several) for key, several in sorted(answers.items())}
    if as_json:
        snapshot = store.snapshot
        rows = [
            Table(device_id, [stored]).find(Query(stored.answer.problem)).as_json(snapshot)
            for (device_id, _), stored in serve.items()
        ]
        print_json(rows)
        return 0
    console = Console(highlight=False, soft_wrap=True)
    if not serve:
        console.print(EMPTY)
    for (device_id, _), stored in serve.items():
        answer, recorded = stored.answer, stored.provenance.recorded
        faster = "" if answer.speedup is None else f", {answer.speedup:.3f} times as fast as the default"
        if answer.kind == "default":
            faster = ", the kernel's default"
        console.print(f"[bold]{problem_text(answer.problem)}[/]  on {device_id}{' (replayed)' if recorded else ''}")
        console.print(f"  [green]{config_text(answer.config)}[/]")
        if (origin := stored.taken_from) is not None:
            faster += f", imported from {escape(origin)}"
        console.print(f"  {latency_text(answer)}{faster}; {stored.created_at[:16].replace('T', ' ')} UTC")
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
