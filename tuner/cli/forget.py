"""`tuner forget OP`: retire stored answers by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from pathlib import PurePath
from typing import Any

import click
from rich.markup import escape

from tuner.cli.grid import Output
from tuner.cli.op_commands import OpCommands
from tuner.cli.ops import EMPTY, db_option, json_option
from tuner.cli.text import print_json, say
from tuner.db.database import Database
from tuner.db.store import Store, default_database
from tuner.errors import NothingFound
from tuner.kernels.spec import Signature, Value
from tuner.lookup.service import LookupService, StoredTables
from tuner.records import StoredAnswer
from tuner.report.text import count_text

_MAX_LINES = 20
"""Problems that are printed."""


class _ForgetCommands(OpCommands):
    """Commands by op. With an option for imports, the op may be left out."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        of_imports = {"--imported", "--file"} & {word.partition("=")[0] for word in args}
        if of_imports and self._split(args)[0] is None:
            return click.Group.parse_args(self, ctx, args)
        return super().parse_args(ctx, args)


def _wanted(signature: Signature, values: Mapping[str, str]) -> Mapping[str, Value]:
    """Return the values that are given, as a problem has them. What is left out is not compared."""
    whole = signature.problem({dim.name: 1 for dim in signature.dims if dim.name not in values} | dict(values))
    return {name: whole.values[name] for name in values}


def _forget_op(reference: str, signature: Signature, wanted: Mapping[str, Value], **options: Any) -> int:
    return _forget(signature.op, wanted, **options)


def _forget_imports(ctx: click.Context, **options: Any) -> int | None:
    return None if ctx.invoked_subcommand is not None else _forget(None, {}, **options)


def _forget(
    op: str | None,
    wanted: Mapping[str, Value],
    *,
    device: str | None,
    imported: bool,
    file: str | None,
    dry_run: bool,
    db: Database | None,
    as_json: bool,
) -> int:
    database = db or default_database()
    if not database.exists():
        raise NothingFound(EMPTY)
    with closing(Store.open(database)) as store:
        if device is not None:
            device = LookupService(StoredTables(store)).resolve_device(device)
        chosen = [
            stored
            for stored in store.answers(op=op, device=device)
            if wanted.items() <= stored.answer.problem.values.items()
            and (stored.imported_from is not None or not (imported or file))
            and (file is None or _is_from(stored, file))
        ]
        pinned = {pin.answer_id for pin in store.pins.of(device)}
        kept = [stored for stored in chosen if stored.id in pinned]
        chosen = [stored for stored in chosen if stored.id not in pinned]
        if not chosen:
            if kept:
                raise NothingFound(f"{_kept(kept)}; run tuner unpin first")
            raise NothingFound("no such answer is in service; tuner list shows those that are")
        retired = len(chosen) if dry_run else store.forget(stored.id for stored in chosen)
        snapshot = store.snapshot
    if as_json:
        rows = {"answers": [*map(_row, chosen)], "pinned": [*map(_row, kept)]}
        print_json({"forgotten": retired, "dry_run": dry_run, **rows, "snapshot": snapshot})
    else:
        _print(chosen, retired, dry_run)
        if kept:
            say(f"{_kept(kept)}.")
    return 0


def _is_from(stored: StoredAnswer, file: str) -> bool:
    """Return whether an answer was imported from a file or store of this name."""
    origin = stored.imported_from or ""
    return file in (origin, PurePath(origin).name)


def _kept(pinned: list[StoredAnswer]) -> str:
    """Return a sentence, without its full stop, on the answers that stay because they are pinned."""
    ids, one = ", ".join(str(stored.id) for stored in pinned), len(pinned) == 1
    return f"answer{'' if one else 's'} {ids} {'is' if one else 'are'} pinned and stay{'s' if one else ''} in service"


def _row(stored: StoredAnswer) -> dict[str, Any]:
    return {
        "id": stored.id,
        "op": stored.answer.problem.op,
        "problem": stored.answer.problem.values,
        "device": stored.provenance.device.id,
        "imported": stored.imported_from,
    }


def _print(chosen: list[StoredAnswer], retired: int, dry_run: bool) -> None:
    console, by_problem = Output(), Counter[tuple[str, str]]()
    by_problem.update((stored.answer.problem.text, stored.provenance.device.id) for stored in chosen)
    for (problem, device), count in [*by_problem.items()][:_MAX_LINES]:
        console.write(f"  {escape(problem)}  on {device}: {count_text(count, 'answer')}")
    if len(by_problem) > _MAX_LINES:
        console.write(f"  and {len(by_problem) - _MAX_LINES:,} more problems")
    number = count_text(retired, "answer")
    outcome = "would be retired" if dry_run else f"{'is' if retired == 1 else 'are'} retired"
    console.write(f"{number} {outcome}; a later search or import replaces {'it' if retired == 1 else 'them'}")


_OPTIONS: list[click.Parameter] = [
    click.Option(["--device"], metavar="ID", help="Only this device."),
    click.Option(["--imported"], is_flag=True, help="Only imported answers."),
    click.Option(["--file"], metavar="ORIGIN", help="Only answers imported from this file or store."),
    click.Option(["--dry-run"], is_flag=True, help="Only print what would be retired."),
    db_option,
    json_option,
]

command = _ForgetCommands(
    _forget_op,
    _OPTIONS,
    asked=_wanted,
    name="forget",
    help="Retire stored answers, so that none serves until a search or an import finds another.\n\n"
    "A value that is not given matches all: tuner forget gemm --M 16 retires each answer with M = 16. OP may be left "
    "out with --imported or --file. "
    "Nothing is deleted; tuner search --force measures the configs again.",
    invoke_without_command=True,
    callback=click.pass_context(_forget_imports),
    params=_OPTIONS,
)
