"""`tuner profile OP`: what limits one config, and the knob that moves it."""

from __future__ import annotations

import os
from contextlib import closing, suppress
from pathlib import Path

import click
from rich.markup import escape

from tuner import recorded
from tuner.cli.best import find
from tuner.cli.grid import Output, print_lines
from tuner.cli.notes import TerminalProgress
from tuner.cli.op_commands import OpCommands
from tuner.cli.ops import db_option, gpu_option, json_option, open_if_there, policy_option
from tuner.cli.text import print_json
from tuner.db.database import Database
from tuner.db.sqlite import IN_MEMORY
from tuner.db.store import Store, default_database
from tuner.errors import NoDevice, NothingFound, UnknownName, UsageError, reason
from tuner.kernels.spec import Config, Problem, Signature
from tuner.measure import device
from tuner.suites.suite import Entry
from tuner.tuning.captured import captured_reference
from tuner.tuning.gpu import AUTO
from tuner.tuning.other_gpus import gpu_here


def _profile(
    reference: str,
    signature: Signature,
    problem: Problem,
    *,
    config: str | None,
    device_id: str | None,
    gpu: str,
    policy: str,
    shared: bool,
    trace: Path | None,
    db: Database | None,
    as_json: bool,
) -> int:
    try:
        from tuner.profiling.profile import profile_elsewhere, profile_here
        from tuner.profiling.report import document, lines
    except ModuleNotFoundError as error:
        raise UsageError(f"a profile needs {error.name}; pip install 'triton-tuner[search]'") from error
    if device_id is not None:
        if ran := [name for name, given in _only_of_runs(gpu, policy, shared, trace).items() if given]:
            raise UsageError(f"{ran[0]} is of a run, and --device runs nothing; leave one of them out")
        card = recorded.devices().get(device_id)
        if card is None:
            known = ", ".join(sorted(recorded.devices()))
            raise UnknownName(f"no recorded card is called {device_id[:80]!r}; known are {known}")
        with closing(open_if_there(db) or Store.open(IN_MEMORY)) as store:
            reference = captured_reference(reference, problem, store, device_id)
            stored = _stored(store, reference, problem, None, device_id)
            entry = Entry(reference, signature, problem)
            found = profile_elsewhere(entry, store, card, stored=stored, given=config)
    else:
        index = device.choose(gpu)
        if index is None:
            raise NoDevice(
                f"profiling runs a config on a GPU, and there is no {gpu_here()}; "
                f"--device ID analyses the code that is compiled for a card: {', '.join(sorted(recorded.devices()))}"
            )
        if trace is not None:
            _check_folder(trace)
        with closing(Store.open(db or default_database())) as store, TerminalProgress() as progress:
            reference = captured_reference(reference, problem, store, device.describe(index).id)
            found = profile_here(
                Entry(reference, signature, problem),
                store,
                index,
                stored=_stored(store, reference, problem, index, None),
                given=config,
                policy=policy,
                shared=shared,
                traces=trace is not None,
                note=progress.note,
            )
    if trace is not None and found.trace is not None:
        _write(trace, found.trace.text)
    if as_json:
        print_json(document(found))
        return 0
    print_lines(map(escape, lines(found)), Output())
    if trace is not None and found.trace is not None:
        made = "Proton's" if found.trace.source == "proton" else "of CUDA events, since Proton gave none"
        print_lines([escape(f"  trace: {trace} ({made}); open it in ui.perfetto.dev")], Output())
    return 0


def _stored(store: Store, reference: str, problem: Problem, here: int | None, device_id: str | None) -> Config | None:
    """Return the config of the stored answer; None if there is none."""
    with suppress(NothingFound, NoDevice, UnknownName):
        found = find(store, reference, problem, here=here, device_id=device_id)
        return None if found.stored is None else found.stored.answer.config
    return None


def _only_of_runs(gpu: str, policy: str, shared: bool, trace: Path | None) -> dict[str, bool]:
    """Return whether each option that only a run has is given."""
    return {"--trace": trace is not None, "--gpu": gpu != AUTO, "--policy": policy != AUTO, "--shared": shared}


def _check_folder(file: Path) -> None:
    """Raise UsageError, before anything is measured, if a file cannot be made for want of its folder."""
    if not os.access(file.parent, os.W_OK):
        raise UsageError(f"the trace cannot be written to {file}: {file.parent} is no folder to write to; name another")


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text)
    except OSError as error:
        raise UsageError(f"the trace cannot be written to {file}: {reason(error)}; name another file") from None


command = OpCommands(
    _profile,
    [
        click.Option(
            ["--config"],
            metavar="TEXT|JSON",
            help="A config, or the knobs to change, such as 'BLOCK_M=64 num_warps=4'.  [default: the stored answer, "
            "else the kernel's default]",
        ),
        click.Option(
            ["--trace"],
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE",
            help="Write a trace that Perfetto opens.",
        ),
        click.Option(
            ["--device", "device_id"],
            metavar="ID",
            help="Analyse the code that is compiled for this card, without running it.",
        ),
        gpu_option,
        policy_option,
        click.Option(["--shared"], is_flag=True, help="Run even while other processes use the GPU."),
        db_option,
        json_option,
    ],
    name="profile",
    help="Profile one config: its time, memory accesses and occupancy, what limits it, and the knob that moves it.",
)
