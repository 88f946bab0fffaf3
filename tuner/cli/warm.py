"""`tuner warm`: compile the answers for a card ahead of their use."""

from __future__ import annotations

from collections.abc import Iterator

import click
from rich.markup import escape

from tuner import precompile
from tuner.cli.grid import Output, print_lines
from tuner.cli.ops import gpu_option, json_option
from tuner.cli.text import print_json
from tuner.cli.whole import Whole
from tuner.errors import NoDevice, UsageError
from tuner.launching.warm import Precompiled
from tuner.measure import device
from tuner.report.text import config_text, first_line, problem_text
from tuner.tuning.other_gpus import gpu_here


def _warm(ops: tuple[str, ...], gpu: str, device_id: str | None, jobs: int | None, as_json: bool) -> int:
    if device_id is not None and gpu != "auto":
        raise UsageError("--gpu chooses a GPU here and --device one elsewhere; give one of them")
    card = device.choose(gpu) if device_id is None else device_id
    if card is None:
        raise NoDevice(f"there is no {gpu_here()}; name a device that has answers with --device")
    done = precompile(*ops, device=card, jobs=jobs)
    if as_json:
        print_json(done.as_json())
    else:
        console = Output()
        print_lines(_lines(done), console)
    return 1 if done.failed else 0


def _lines(done: Precompiled) -> Iterator[str]:
    yield (
        f"[bold]{done.device}[/]  {done.compiled:,} compiled, {done.cached:,} cached already, "
        f"{len(done.failed):,} failed; {done.seconds:,.1f} s"
    )
    if not (done.compiled or done.cached or done.failed):
        yield "  nothing is tuned for it yet; tuner search OP tunes a problem"
    for result in done.failed:
        assert result.problem is not None
        yield f"  [yellow]{escape(problem_text(result.problem))}[/]  {escape(config_text(result.config))}"
        yield f"    {result.outcome}: {escape(first_line(result.error, None))}"


command = click.Command(
    "warm",
    callback=_warm,
    params=[
        click.Argument(["ops"], metavar="[OP]...", nargs=-1),
        gpu_option,
        click.Option(
            ["--device", "device_id"],
            metavar="ID",
            help="A card that is not in this machine; only Triton's cache is filled.",
        ),
        click.Option(
            ["--jobs"],
            type=Whole(1),
            metavar="N",
            help="Number of parallel compiles.  [default: number of usable cores]",
        ),
        json_option,
    ],
    help="Compile the answers for a card ahead of their use.\n\n"
    "Reads the answers that model code would read: those of TUNER_SNAPSHOT, else TUNER_URL, else TUNER_DB, else the\n"
    "database in your data folder.",
)
