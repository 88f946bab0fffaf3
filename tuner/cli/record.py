"""`tuner record OP`: measure every feasible config on a GPU, and write a space that can be searched anywhere."""

from __future__ import annotations

import os
from pathlib import Path

import click

from tuner import recorded
from tuner.cli import INTERRUPTED
from tuner.cli.interrupt import Interrupt
from tuner.cli.notes import TerminalProgress
from tuner.cli.op_commands import OpCommands
from tuner.cli.ops import db_option, gpu_option, policy_option
from tuner.cli.text import say
from tuner.db.database import Database
from tuner.db.store import Store, default_database
from tuner.errors import NoDevice, UsageError
from tuner.kernels.spec import Problem, Signature
from tuner.measure import device
from tuner.report.text import configs_text, not_run_text
from tuner.suites.suite import Entry
from tuner.tuning.gpu import MeasureOptions
from tuner.tuning.other_gpus import gpu_here
from tuner.tuning.record import record_space
from tuner.tuning.target import gpu_target
from tuner.tuning.tuned import nothing_ran


def _record(
    reference: str,
    signature: Signature,
    problem: Problem,
    *,
    gpu: str,
    policy: str,
    out: Path,
    fresh: bool,
    db: Database | None,
) -> int:
    index = device.choose(gpu)
    if index is None:
        raise NoDevice(f"recording measures on a GPU, and there is no {gpu_here()}; run it on a machine with the card")
    _check_folder(out)
    store, entry = Store.open(db or default_database()), Entry(reference, signature, problem)
    with TerminalProgress() as progress, Interrupt() as interrupt:
        options = MeasureOptions(gpu, policy=policy)
        target = gpu_target(entry, store, index, options=options, events=progress, stop_beaten=False)
        result, space = record_space(entry, target, store, fresh=fresh, events=progress, stop=interrupt.token)
    if result.stopped == "interrupted":
        done = f"{len(result.measurements):,} of {configs_text(len(target.space))}"
        say(f"Interrupted after {done}; the same command continues from there.")
        return INTERRUPTED
    if space is None:
        raise nothing_ran(result)
    file = out / f"{space.name}.json.gz"
    file.write_bytes(recorded.dumps(space))
    seconds = sum(result.seconds.values())
    not_run = f", of which {not_run_text(result.failures)}" if result.failures else ""
    say(f"{configs_text(len(space.measurements))} in {seconds:,.0f} s{not_run}")
    click.echo(str(file))
    return 0


def _check_folder(folder: Path) -> None:
    """Make the folder.

    Raises:
        UsageError: it cannot be made or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"the folder {folder} cannot be made: {error.strerror}") from error
    if not os.access(folder, os.W_OK):
        raise UsageError(f"the folder {folder} cannot be written to")


command = OpCommands(
    _record,
    [
        gpu_option,
        policy_option,
        click.Option(
            ["--out"],
            type=click.Path(path_type=Path, file_okay=False),
            default=".",
            show_default=True,
            help="Folder to write to.",
        ),
        click.Option(["--fresh"], is_flag=True, help="Measure again what earlier runs measured."),
        db_option,
    ],
    name="record",
    help="Measure every config of a problem, and write the recorded space to a file.",
)
