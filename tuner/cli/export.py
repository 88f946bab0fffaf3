"""`tuner export`: the stored answers as one file, for machines without a database and ranks that must agree.

Also as files in the formats of other tools.
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from tuner.cli.grid import Output, escape, print_lines
from tuner.cli.ops import EMPTY, db_option, json_option, open_to_read
from tuner.cli.text import print_json, say
from tuner.db.database import Database
from tuner.db.store import Store, Tip
from tuner.errors import NothingFound, UsageError
from tuner.exchange import folder, t4
from tuner.exchange.config_tables import STYLES, to_tables
from tuner.exchange.imported import Skipped
from tuner.lookup import bundle
from tuner.lookup.bundle import Bundle
from tuner.lookup.ranking import not_replaced, serving
from tuner.lookup.service import LookupService, StoredTables
from tuner.recorded import problem_stem
from tuner.records import StoredAnswer
from tuner.report.text import count_text

_BUNDLE, _T4 = "bundle", "t4"


def _export(target: Path, format: str, op: str | None, device: str | None, db: Database | None, as_json: bool) -> int:
    if str(target) == "-":
        raise UsageError("answers are written to a file, not to the standard output; name a file")
    with closing(open_to_read(db)) as store:
        tip = store.tip()
        answers = _wanted(store, tip, op, device)
        if format != _BUNDLE:
            documents, refused = _searches(store, answers) if format == _T4 else to_tables(answers, format)
            written, kept = folder.write(target, documents)
            _print_folder(target, written, [*refused, *kept], as_json)
            return 0 if written else 1
        held = _written(target, store, tip, answers)
    _print_bundle(target, held, as_json)
    return 0


def _wanted(store: Store, tip: Tip, op: str | None, device: str | None) -> list[StoredAnswer]:
    """Return the answers that serve, of one op and device if they are given."""
    answers = store.answers_between(0, tip.answer, op=op)
    if answers and device is not None:
        device = LookupService(StoredTables(store)).resolve_device(device)
    wanted = not_replaced(stored for stored in answers if device in (None, stored.provenance.device.id))
    if not wanted:
        about = " ".join(filter(None, (op and f"of {op}", device and f"on {device}")))
        raise NothingFound(f"no answer {about} is stored; tuner list shows what is" if about else EMPTY)
    return wanted


def _written(file: Path, store: Store, tip: Tip, wanted: list[StoredAnswer]) -> Bundle:
    ops = {stored.answer.problem.op for stored in wanted}
    signatures = [signature for name, signature in sorted(store.signatures().items()) if name in ops]
    ids = {stored.id for stored in wanted}
    transfers = [
        one for several in store.transfers().values() for one in several if {one.from_answer, one.to_answer} <= ids
    ]
    return bundle.write(file, tip.snapshot, signatures, wanted, transfers)


def _searches(store: Store, answers: list[StoredAnswer]) -> tuple[dict[str, Any], list[Skipped]]:
    """Return the measurements of the searches behind the answers in service, a document for each."""
    by_query: dict[tuple[str, str], list[StoredAnswer]] = {}
    for stored in answers:
        by_query.setdefault((stored.answer.problem.text, stored.provenance.device.id), []).append(stored)
    documents, refused = dict[str, Any](), list[Skipped]()
    for (text, device), several in by_query.items():
        stored = serving(several)
        run = store.run(stored.measured_in)
        measured = [] if run is None or stored.provenance.recorded is not None else store.known_to(run)
        try:
            path = folder.relative_path(f"{problem_stem(stored.answer.problem)}-{device}.json")
            if not measured:
                raise UsageError("the measurements of its search are not stored: it was imported, replayed or pruned")
            documents[path] = t4.to_document(measured)
        except UsageError as error:
            refused.append(Skipped(text, str(error)))
    return documents, refused


def _print_folder(target: Path, written: list[str], left_out: list[Skipped], as_json: bool) -> None:
    if as_json:
        listed = [{"what": refused.file, "reason": refused.reason} for refused in left_out]
        print_json({"folder": str(target), "files": written, "left_out": listed})
        return
    for reason, count in Counter(refused.reason for refused in left_out).items():
        say(f"left out: {count:,} x {reason}")
    has = f"{target} has {count_text(len(written), 'new file')}"
    print_lines(map(escape, [has, *(f"  {path}" for path in written)]), Output())


def _print_bundle(file: Path, held: Bundle, as_json: bool) -> None:
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
        number = count_text(len(held.answers), "answer")
        holds = f"{file} holds {number} of {', '.join(held.signatures)} on {', '.join(devices)}"
        print_lines([escape(holds), f"  snapshot  {held.snapshot}", f"  sha256    {held.sha256}"], Output())


command = click.Command(
    "export",
    callback=_export,
    params=[
        click.Argument(["target"], metavar="FILE", type=click.Path(path_type=Path)),
        click.Option(
            ["--format"],
            type=click.Choice([_BUNDLE, *STYLES, _T4]),
            default=_BUNDLE,
            show_default=True,
            help="bundle: one file. vllm, sglang: a folder of config tables by M. t4: a folder with all measurements.",
        ),
        click.Option(["--op"], metavar="OP", help="Only this op."),
        click.Option(["--device"], metavar="ID", help="Only this device."),
        db_option,
        json_option,
    ],
    help="Write the stored answers and their signatures to FILE, compressed if its name ends in .gz.\n\n"
    "Model code reads it if TUNER_SNAPSHOT names it.",
)
