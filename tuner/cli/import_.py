"""`tuner import FILE...`: store answers and configs of other stores and tools."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import click
from rich.markup import escape

from tuner import catalog, recorded
from tuner.cli.grid import Output, print_lines
from tuner.cli.ops import db_option, json_option
from tuner.cli.text import print_json
from tuner.db.database import Database
from tuner.db.store import Store, default_database
from tuner.errors import NoDevice, UnknownName
from tuner.exchange.import_report import ImportReport
from tuner.exchange.imported import ImportOptions
from tuner.exchange.importing import import_files
from tuner.kernels.spec import Signature
from tuner.measure import device
from tuner.records import Device

_MAX_REASONS = 20
"""Lines printed about what was skipped."""


def _import(
    paths: tuple[Path, ...],
    *,
    op: str | None,
    device_id: str | None,
    triton: str,
    problem: dict[str, str | None],
    replace: bool,
    db: Database | None,
    as_json: bool,
) -> int:
    with closing(Store.open(db or default_database())) as store:
        stored = store.signatures()
        report = import_files(
            paths,
            store,
            ImportOptions(op, device_id, triton, problem),
            lambda op: _known_signature(op, stored),
            lambda id: _known_device(store, id),
            replace=replace,
        )
    if as_json:
        print_json(report.as_json())
    else:
        _print(report)
    return 1 if report.is_empty else 0


def _known_signature(op: str, stored: Mapping[str, Signature]) -> Signature | None:
    """Return the signature of an op's kernel, else the stored one, or None."""
    try:
        return catalog.load(op).signature
    except NoDevice:  # the kernel exists, and its code cannot be loaded here
        return recorded.signatures().get(op, stored.get(op))
    except UnknownName:
        return stored.get(op)


def _known_device(store: Store, id: str) -> Device | None:
    """Return the card with an id as this machine or the store describes it, or None."""
    here = device.choose("auto")
    own = None if here is None else device.describe(here)
    return own if own is not None and own.id == id else store.device(id)


def _print(report: ImportReport) -> None:
    reasons = list(report.reasons())
    lines = [f"  {escape(line)}" for line in reasons[:_MAX_REASONS]]
    if len(reasons) > _MAX_REASONS:
        lines.append(f"  and {len(reasons) - _MAX_REASONS:,} more lines; --json prints all of them")
    print_lines([*lines, *report.summary()], Output())


def _problem(text: str) -> dict[str, str | None]:
    """Return the values of `M=4096,dtype=bf16` by name, or None for each name of `M,N`."""
    parts = [re.fullmatch(r"(\w{1,64})(?:=([\w.+-]{1,64}))?", part, re.ASCII) for part in text.split(",")]
    values = {part[1]: part[2] for part in parts if part}
    if len(values) != len(parts):
        raise click.BadParameter(f"a problem is M=4096,dtype=bf16, or names alone such as M,N; not {text[:80]!r}")
    return values


command = click.Command(
    "import",
    callback=lambda *, problem, **options: _import(problem=problem or {}, **options),
    params=[
        click.Argument(["paths"], nargs=-1, required=True, type=click.Path(path_type=Path)),
        click.Option(["--op"], metavar="NAME", help="Op of the kernel, if the file does not state it."),
        click.Option(["--device", "device_id"], metavar="ID", help="The card, if the file does not state it."),
        click.Option(
            ["--triton"], metavar="VERSION", default="", help="Triton's version, if the file does not state it."
        ),
        click.Option(
            ["--problem"],
            type=_problem,
            metavar="NAME=VALUE,...",
            help="The problem, such as M=4096,dtype=bf16; or names alone, such as M,N,K, for the values in the file.",
        ),
        click.Option(["--replace"], is_flag=True, help="Replace answers that were measured here too."),
        db_option,
        json_option,
    ],
    help="Import answers and configs of other stores and tools: bundles of tuner export, tables of vLLM and SGLang, "
    "caches of triton.autotune and Kernel Tuner, T4 results. A path may be a folder of them.",
)
