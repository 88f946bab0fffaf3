"""`tuner import FILE...`: answers and configs that were found elsewhere."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape

from tuner import catalog
from tuner.cli.ops import db_option, json_option
from tuner.cli.text import print_json
from tuner.db.database import Database
from tuner.db.store import Store, default_database
from tuner.errors import NoDevice, UnknownName
from tuner.exchange.adopt import adopt, unpacked
from tuner.exchange.claim import Given, Refused
from tuner.exchange.files import Reading, read
from tuner.exchange.report import ImportReport
from tuner.kernels.spec import Signature
from tuner.measure import device, recorded
from tuner.records import Device

_SHOWN = 20
"""Lines about what was skipped."""


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
    reading = read(paths, Given(op, device_id, triton, problem))
    with closing(Store.open(db or default_database())) as store:
        report = _let_in(store, reading, replace=replace)
    if as_json:
        print_json(report.as_json())
    else:
        _print(report)
    return 1 if report.in_vain else 0


def _let_in(store: Store, reading: Reading, *, replace: bool) -> ImportReport:
    stored = store.signatures()
    adopted, refused = adopt(reading.claims, lambda op: _known(op, stored), lambda id: _described(store, id))
    arrivals = [(arrival.origin, arrival) for arrival in adopted]
    arrivals += [(file, arrival) for file, held in reading.bundles for arrival in unpacked(held)]
    fates = store.take_in([arrival for _, arrival in arrivals], replace=replace)
    kept_out = (Refused(file, str(fate)) for (file, _), fate in zip(arrivals, fates, strict=True) if not fate.stored)
    return ImportReport(
        files=reading.files,
        read=reading.count,
        fates=Counter(fates),
        skipped=(*reading.refused, *refused, *kept_out),
        not_understood=reading.not_understood,
    )


def _known(op: str, stored: Mapping[str, Signature]) -> Signature | None:
    """What an op is asked by: its kernel, where there is one."""
    try:
        return catalog.load(op).signature
    except NoDevice:  # there is one, and its code cannot be loaded here
        return recorded.signatures().get(op, stored.get(op))
    except UnknownName:
        return stored.get(op)


def _described(store: Store, id: str) -> Device | None:
    """The card of that id as it is here, or as the store knows it."""
    here = device.choose("auto")
    own = None if here is None else device.describe(here)
    return own if own is not None and own.id == id else store.device(id)


def _print(report: ImportReport) -> None:
    console = Console(highlight=False, soft_wrap=True)
    reasons = list(report.reasons())
    for line in reasons[:_SHOWN]:
        console.print(f"  {escape(line)}")
    if len(reasons) > _SHOWN:
        console.print(f"  and {len(reasons) - _SHOWN:,} lines more; --json has them all")
    for line in report.summary():
        console.print(line)


def _problem(text: str) -> dict[str, str | None]:
    """`M=4096,dtype=bf16`, or `M,N` where a file has the values."""
    found = [re.fullmatch(r"(\w{1,64})(?:=([\w.+-]{1,64}))?", part) for part in text.split(",")]
    told = {part[1]: part[2] for part in found if part}
    if len(told) != len(found):
        raise click.BadParameter(f"a problem is M=4096,dtype=bf16, or names alone; not {text[:80]!r}")
    return told


command = click.Command(
    "import",
    callback=lambda *, problem, **given: _import(problem=problem or {}, **given),
    params=[
        click.Argument(["paths"], nargs=-1, required=True, type=click.Path(path_type=Path)),
        click.Option(["--op"], metavar="NAME", help="What the kernel is called, where the file does not say."),
        click.Option(["--device", "device_id"], metavar="ID", help="The card, where the file does not say."),
        click.Option(["--triton"], metavar="VERSION", default="", help="The compiler, where the file does not say."),
        click.Option(
            ["--problem"],
            type=_problem,
            metavar="NAME=VALUE,...",
            help="What was tuned, M=4096,dtype=bf16; or the names alone of what the file has the values of: M,N,K.",
        ),
        click.Option(["--replace"], is_flag=True, help="Also in place of answers that were measured here."),
        db_option,
        json_option,
    ],
    help="Take in answers and configs that were found elsewhere: bundles of tuner export, tables of vLLM and SGLang, "
    "caches of triton.autotune, T4 results. A path may be a folder of them.",
)
