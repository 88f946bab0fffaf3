"""`tuner record`: measure every feasible config of problems on a GPU, and write spaces that replay anywhere."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from tuner import recorded
from tuner.cli import INTERRUPTED
from tuner.cli.dry_run import dry_run_options, give_plan, refuse_device
from tuner.cli.interrupt import Interrupt
from tuner.cli.notes import TerminalProgress
from tuner.cli.op_commands import OpCommands
from tuner.cli.ops import db_option, gpu_option, policy_option
from tuner.cli.suites import selected_suite, suite_options
from tuner.cli.text import say
from tuner.db.database import Database
from tuner.db.store import Store, default_database
from tuner.errors import KernelFault, MeasureError, NoDevice, NothingFound, UsageError
from tuner.kernels.spec import Problem, Signature
from tuner.kernels.vendors import EAGER
from tuner.measure import device
from tuner.recorded import RecordedSpace
from tuner.report.text import configs_text, not_run_text, short
from tuner.search import Result
from tuner.suites.suite import Entry, Suite
from tuner.tuning.gpu import MeasureOptions
from tuner.tuning.other_gpus import gpu_here
from tuner.tuning.record import record_space, recording
from tuner.tuning.target import gpu_target
from tuner.tuning.tuned import nothing_ran


def _record(
    suite: Suite,
    *,
    gpu: str,
    policy: str,
    out: Path,
    fresh: bool,
    dry_run: bool,
    device_id: str | None,
    db: Database | None,
) -> int:
    """Record the problems one after the other. A problem of several may fail; an error of the only one is raised."""
    if suite.note:
        say(suite.note)
    if dry_run:
        return give_plan(suite, recording(fresh), db=db, gpu=gpu, device_id=device_id, verb="record")
    refuse_device(device_id, "a recording")
    index = device.choose(gpu)
    if index is None:
        raise NoDevice(f"recording measures on a GPU, and there is no {gpu_here()}; run it on a machine with the card")
    _check_folder(out)
    store, options, code = Store.open(db or default_database()), MeasureOptions(gpu, policy=policy, vendors=EAGER), 0
    with TerminalProgress() as progress, Interrupt() as interrupt:
        for number, entry in enumerate(suite.entries, 1):
            try:
                target = gpu_target(entry, store, index, options=options, events=progress, stop_beaten=False)
                result, space = record_space(entry, target, store, fresh=fresh, events=progress, stop=interrupt.token)
                if result.stopped == "interrupted":
                    done = f"{len(result.measurements):,} of {configs_text(len(target.space))}"
                    of_all = f" of problem {number} of {len(suite.entries)}" if len(suite.entries) > 1 else ""
                    say(f"Interrupted after {done}{of_all}; the same command continues from there.")
                    return INTERRUPTED
                _write(result, space, out)
            except (NothingFound, MeasureError, KernelFault) as error:
                if len(suite.entries) == 1:
                    raise
                say(f"{short(entry.problem)}: failed, {error}")
                code = 1
    return code


def _write(result: Result, space: RecordedSpace | None, folder: Path) -> None:
    """Write a recorded space, and print its file.

    Raises:
        NothingFound: No config ran with correct results.
    """
    if space is None:
        raise nothing_ran(result)
    file = folder / f"{space.name}.json.gz"
    file.write_bytes(recorded.dumps(space))
    seconds = sum(result.seconds.values())
    not_run = f", of which {not_run_text(result.failures)}" if result.failures else ""
    say(f"{configs_text(len(space.measurements))} in {seconds:,.0f} s{not_run}")
    click.echo(str(file))


def _record_op(reference: str, signature: Signature, problem: Problem, **options: Any) -> int:
    return _record(Suite(problem.text, (Entry(reference, signature, problem),)), **options)


def _record_suite(
    ctx: click.Context, suite: str | None, dtype: str | None, only: tuple[str, ...], list_: bool, **options: Any
) -> int | None:
    chosen = selected_suite(ctx, suite, dtype, only, list_, options["db"])
    return None if chosen is None else _record(chosen, **options)


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


_OPTIONS: list[click.Parameter] = [
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
    *dry_run_options("the problems with the sizes of their spaces, and the expected time"),
    db_option,
]

command = OpCommands(
    _record_op,
    _OPTIONS,
    name="record",
    help="Measure every config of a problem, or of each of a suite, and write each recorded space to a file.",
    invoke_without_command=True,
    callback=click.pass_context(_record_suite),
    params=[*suite_options("Record"), *_OPTIONS],
)
