"""`tuner spaces`: the recorded search spaces that ship, as files for other tools."""

from __future__ import annotations

from pathlib import Path

import click
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Column, Table

from tuner.errors import UsageError
from tuner.measure import foreign, recorded


def _t4(space: recorded.Space) -> tuple[str, bytes]:
    return f"{space.name}.json.gz", recorded.dumps(space)


def _kernel_tuner(space: recorded.Space) -> tuple[str, bytes]:
    cache = foreign.as_cache(space.measurements, space.problem.op, space.problem.sizes, space.device.name)
    return f"{space.name}.json", cache.encode()


_FORMATS = {"kernel-tuner": _kernel_tuner, "t4": _t4}


def _spaces(names: tuple[str, ...], export: str | None, out: Path) -> int:
    spaces = map(recorded.load, names or recorded.names())
    if export is None:
        table = Table(
            Column("space", overflow="fold"), "configs", "best us", "device", "Triton", "recorded", box=SIMPLE
        )
        for space in spaces:
            best = min(measurement.latency_us for measurement in space.measurements)
            configs, triton = f"{len(space.measurements):,}", space.environment.triton
            table.add_row(space.name, configs, f"{best:,.2f}", space.device.name, triton, space.recorded_at[:10])
        Console(highlight=False, soft_wrap=True).print(table)
        return 0
    for space in spaces:
        name, content = _FORMATS[export](space)
        try:
            out.mkdir(parents=True, exist_ok=True)
            (out / name).write_bytes(content)
        except OSError as error:
            raise UsageError(f"{out / name} cannot be written: {error.strerror}") from error
        click.echo(str(out / name))
    return 0


command = click.Command(
    "spaces",
    callback=_spaces,
    params=[
        click.Argument(["names"], nargs=-1, metavar="[SPACE]..."),
        click.Option(
            ["--export"], type=click.Choice([*_FORMATS]), help="Write them for other tools, and print the files' names."
        ),
        click.Option(
            ["--out"],
            type=click.Path(path_type=Path, file_okay=False),
            default=".",
            show_default=True,
            help="Folder to write to.",
        ),
    ],
    help="List the recorded spaces that ship with the package, or write them as a Kernel Tuner cache or in the T4 "
    "schema.\n\nSPACE is a name or a file of `tuner record`; all that ship if none is given.",
)
