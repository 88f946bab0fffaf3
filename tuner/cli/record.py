"""`tuner record OP`: measures a whole feasible set on a GPU and writes it to a file that can be searched anywhere."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import click

from tuner.cli import INTERRUPTED
from tuner.cli.ops import OpCommands, db_option, gpu_option, policy_option
from tuner.cli.text import configs_text, failures_text, say
from tuner.db.database import Database
from tuner.db.store import Store, default_database
from tuner.errors import NoDevice, NothingFound, UsageError
from tuner.kernels.spec import Problem, Signature
from tuner.measure import device, recorded
from tuner.records import Measurement
from tuner.search.loop import Budget
from tuner.tuning.run import run_search
from tuner.tuning.target import gpu_target

_WITHIN, _FEWEST = 1.05, 32
"""Configs up to this times the best, or so many, meet in the recorded duel: any search's finalists are among them."""


def _close_to_best(ranked: Sequence[Measurement]) -> Sequence[Measurement]:
    close = [measurement for measurement in ranked if measurement.latency_us <= _WITHIN * ranked[0].latency_us]
    return max(close, ranked[:_FEWEST], key=len)


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
        raise NoDevice("recording measures on a GPU, and there is none here")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"the folder {out} cannot be made: {error.strerror}") from error
    if not os.access(out, os.W_OK):
        raise UsageError(f"the folder {out} cannot be written to")
    store = Store.open(db or default_database())
    source = gpu_target(reference, problem, store, index, policy=policy, stop_beaten=False)
    result = run_search(
        source,
        store,
        signature,
        problem,
        sampler="grid",
        seed=0,
        budget=Budget(),
        reuse=lambda measurement: not (fresh or measurement.looked_at),
        finalists=_close_to_best,
        elimination_s=None,
        warm_start=False,
    )
    if result.stopped == "interrupted":
        done = f"{len(result.measurements):,} of {configs_text(len(source.space))}"
        say(f"Interrupted after {done}; the same command goes on from there.")
        return INTERRUPTED
    if result.comparison is None:
        raise NothingFound(f"no config ran right: {failures_text(result.failures)}; no file is written")
    by_config = {measurement.config: measurement for measurement in result.measurements}
    space = recorded.RecordedSpace(
        signature=signature,
        problem=problem,
        device=source.provenance.device,
        environment=source.provenance.environment,
        source=source.provenance.source,
        policy=source.policy,
        default=source.default,
        flops=source.flops,
        bytes=source.bytes,
        recorded_at=datetime.now(UTC).isoformat(timespec="seconds"),
        measurements=tuple(by_config[config] for config in source.space),
        comparison=result.comparison,
    )
    file = out / f"{space.name}.json.gz"
    file.write_bytes(recorded.dumps(space))
    counted = failures_text(result.failures)
    seconds = sum(result.seconds.values())
    say(f"{configs_text(len(space.measurements))} in {seconds:,.0f} s{f' ({counted})' if counted else ''}")
    click.echo(str(file))
    return 0


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
    help="Measure every config of a problem, and write the space to a file.",
)
