"""`tuner list`: the answers in service."""

from __future__ import annotations

import click
from rich.markup import escape

from tuner.cli.grid import Output
from tuner.cli.ops import EMPTY, db_option, json_option, open_to_read
from tuner.cli.text import print_json
from tuner.db.database import Database
from tuner.errors import UnknownName
from tuner.lookup.query import Query
from tuner.lookup.ranking import serving
from tuner.lookup.service import LookupService, StoredTables
from tuner.lookup.table import Table
from tuner.recorded import signatures
from tuner.records import StoredAnswer
from tuner.report.text import basis_text, config_text, latency_text, minute_text, problem_text, speed_text


def _list(op: str | None, device: str | None, db: Database | None, as_json: bool) -> int:
    store = open_to_read(db)
    if op is not None and op not in (known := signatures() | store.signatures()):
        raise UnknownName(f"no op is called {op[:80]!r}; known are {', '.join(sorted(known))}")
    if device is not None:
        device = LookupService(StoredTables(store)).resolve_device(device)
    answers: dict[tuple[str, str], list[StoredAnswer]] = {}
    for stored in store.answers(op=op, device=device, forgotten=True):
        answers.setdefault((stored.provenance.device.id, stored.answer.problem.text), []).append(stored)
    kept = {key: [one for one in several if one.forgotten_at is None] for key, several in sorted(answers.items())}
    in_service = {key: serving(several) for key, several in kept.items() if several}
    retired = [answers[key][-1] for key, several in kept.items() if not several]
    pins = {(pin.device, pin.problem): pin for pin in store.pins.of(device)}
    if as_json:
        snapshot = store.snapshot
        rows = [
            {**Table(key[0], [stored]).find(Query(stored.answer.problem)).as_json(snapshot), "pinned": key in pins}
            for key, stored in in_service.items()
        ]
        print_json(rows)
        return 0
    console = Output()
    if not answers:
        console.write(EMPTY)
    for key, stored in in_service.items():
        device_id = key[0]
        answer, recorded = stored.answer, stored.provenance.recorded
        faster = "" if answer.speedup is None else f", {speed_text(answer.speedup, 'default')}"
        if answer.kind == "default":
            faster = ", the kernel's default"
        if basis := basis_text(answer):
            faster += f", {basis}"
        console.write(
            f"[bold]{escape(problem_text(answer.problem))}[/]  on {device_id}{' (replayed)' if recorded else ''}"
        )
        console.write(f"  [green]{escape(config_text(answer.config))}[/]")
        if (origin := stored.imported_from) is not None:
            faster += f", imported from {escape(origin)}"
        if stored.restored is not None:
            faster += f", restored from answer {stored.restored}"
        if (pin := pins.get(key)) is not None:
            faster += f", [yellow]pinned{escape(pin.because)}[/]"
        console.write(f"  {latency_text(answer)}{faster}; {minute_text(stored.created_at)} UTC")
    for stored in retired:
        console.write(f"[bold]{escape(problem_text(stored.answer.problem))}[/]  on {stored.provenance.device.id}")
        console.write(f"  forgotten {minute_text(stored.forgotten_at or '')} UTC; a search finds another")
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
    help="List the stored answers, one for each problem and device.",
)
