"""`tuner export`: the stored answers in one file, for machines that reach no database and for ranks that must agree."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path

import click

from tuner import bundle
from tuner.bundle import Bundle
from tuner.cli.ops import db_option, json_option, open_to_read
from tuner.cli.show import print_json, say
from tuner.db.database import Database
from tuner.db.store import Store
from tuner.errors import NothingFound


def _export(file: Path, op: str | None, device: str | None, db: Database | None, as_json: bool) -> int:
    with closing(open_to_read(db)) as store:
        held = _written(file, store, op, device)
    for reason, count in Counter(held.skipped).items():
        say(f"left out: {count:,} x {reason}")
    devices = sorted({stored.provenance.device.id for stored in held.answers})
    if as_json:
        print_json(
            {
                "file": str(file),
                "answers": len(held.answers),
                "skipped": len(held.skipped),
                "ops": sorted(held.signatures),
                "devices": devices,
                "snapshot": held.snapshot,
                "sha256": held.sha256,
            }
        )
    else:
        number = f"{len(held.answers):,} answer{'' if len(held.answers) == 1 else 's'}"
        click.echo(f"{file} holds {number} of {', '.join(held.signatures)} on {', '.join(devices)}")
        click.echo(f"snapshot {held.snapshot}, sha256 {held.sha256}")
    return 0


def _written(file: Path, store: Store, op: str | None, device: str | None) -> Bundle:
    tip = store.tip()
    answers, _ = store.answers_between(0, tip.answer)
    wanted = [
        stored
        for stored in answers
        if op in (None, stored.answer.problem.op) and device in (None, stored.provenance.device.id)
    ]
    if not wanted:
        about = " ".join(filter(None, (op and f"of {op}", device and f"on {device}")))
        raise NothingFound(f"no answer {about or 'at all'} is stored; tuner list shows what is")
    ops = {stored.answer.problem.op for stored in wanted}
    signatures = [signature for name, signature in sorted(store.signatures().items()) if name in ops]
    ids = {stored.id for stored in wanted}
    transfers = [one for several in store.transfers().values() for one in several if one.to_answer in ids]
    return bundle.write(file, tip.snapshot, signatures, wanted, transfers)


command = click.Command(
    "export",
    callback=_export,
    params=[
        click.Argument(["file"], type=click.Path(path_type=Path, dir_okay=False)),
        click.Option(["--op"], metavar="OP", help="Only this op."),
        click.Option(["--device"], metavar="ID", help="Only this device."),
        db_option,
        json_option,
    ],
    help="Write the stored answers to FILE, with the signatures that read them; compressed if it ends in .gz.\n\n"
    "Model code reads it where TUNER_SNAPSHOT names it.",
)
