"""`tuner spaces`: list the recorded spaces that ship, or write them for other tools."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.box import SIMPLE
from rich.table import Column, Table

from tuner import recorded
from tuner.cli.grid import Output, print_table
from tuner.cli.ops import json_option
from tuner.cli.text import print_json
from tuner.errors import UsageError
from tuner.exchange import kernel_tuner
from tuner.records import files


def _t4(space: recorded.RecordedSpace) -> tuple[str, bytes]:
    return f"{space.name}.json.gz", recorded.dumps(space)


def _kernel_tuner(space: recorded.RecordedSpace) -> tuple[str, bytes]:
    cache = kernel_tuner.to_cache(space.measurements, space.problem.op, space.problem.sizes, space.device.name)
    return f"{space.name}.json", cache.encode()


_FORMATS = {"kernel-tuner": _kernel_tuner, "t4": _t4}


def _spaces(names: tuple[str, ...], export: str | None, out: Path, as_json: bool) -> None:
    names = names or tuple(recorded.names())
    if export is not None:
        _write([recorded.load(name) for name in names], export, out)
        return
    spaces = [recorded.outline(name) for name in names]
    if as_json:
        print_json([_as_json(space) for space in spaces])
    else:
        print_table(_table(spaces), Output(), spare=("Triton", "recorded", "device"))


def _as_json(space: recorded.Outline) -> dict[str, Any]:
    return {
        "space": space.name,
        "op": space.problem.op,
        "problem": space.problem.values,
        "device": space.device.id,
        "configs": space.configs,
        "best_us": round(space.best_us, 4),
        "triton": space.triton,
        "policy": space.policy.text,
        "recorded_at": space.recorded_at,
    }


def _table(spaces: Sequence[recorded.Outline]) -> Table:
    numbers = (Column(head, justify="right", no_wrap=True) for head in ("configs", "best us"))
    name = Column("space")
    table = Table(name, *numbers, "device", "Triton", "recorded", box=SIMPLE, pad_edge=False)
    for space in spaces:
        measured = (f"{space.configs:,}", f"{space.best_us:,.2f}")
        table.add_row(space.name, *measured, space.device.name, space.triton, space.recorded_at[:10])
    return table


def _write(spaces: Sequence[recorded.RecordedSpace], export: str, out: Path) -> None:
    for space in spaces:
        name, content = _FORMATS[export](space)
        try:
            out.mkdir(parents=True, exist_ok=True)
            files.write_atomically(out / name, content)
        except OSError as error:
            raise UsageError(
                f"{out / name} cannot be written: {error.strerror}; give another folder with --out"
            ) from error
        click.echo(str(out / name))


command = click.Command(
    "spaces",
    callback=_spaces,
    params=[
        click.Argument(["names"], nargs=-1, metavar="[SPACE]..."),
        click.Option(
            ["--export"], type=click.Choice([*_FORMATS]), help="Write them for other tools, and print the paths."
        ),
        click.Option(
            ["--out"],
            type=click.Path(path_type=Path, file_okay=False),
            default=".",
            show_default=True,
            help="Folder to write to.",
        ),
        json_option,
    ],
    help="List the recorded spaces that ship with the package, or write them as a Kernel Tuner cache or in the T4 "
    "schema.\n\nSPACE is a name or a file of `tuner record`; all that ship if none is given.",
)
