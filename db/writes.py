"""Writes inside a transaction: rows, and the rows that they point to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, insert, select, update

from tuner.db import schema
from tuner.db.rows import digest, fingerprint, utc_now
from tuner.kernels.spec import Problem, Signature
from tuner.records import Comparison, Device, Provenance


def insert_row(connection: Connection, table: type[schema.Base], **values: Any) -> int:
    """Write a row and return its id."""
    row = connection.execute(insert(table).returning(table.id), values).one()  # type: ignore[attr-defined]
    return int(row[0])


def id_of(connection: Connection, table: type[schema.Base], unique: Mapping[str, Any], **others: Any) -> int:
    """Return the id of the row with these unique values. A missing row is written."""
    found = connection.scalar(select(table.id).filter_by(**unique))  # type: ignore[attr-defined]
    return insert_row(connection, table, **unique, **others) if found is None else int(found)


def device_id(connection: Connection, device: Device) -> int:
    """Return the id of a device's row. A missing row is written."""
    known_as = {"slug": device.id, "fingerprint": fingerprint(device)}
    return id_of(connection, schema.DeviceRow, known_as, facts=asdict(device), roofline_limits=None)


def run_values(
    connection: Connection,
    signature: Signature,
    problem: Problem,
    provenance: Provenance,
    settings: Mapping[str, Any],
    ids: dict[object, int] | None = None,
) -> dict[str, Any]:
    """Return the row of a run that starts now. `ids`: known ids of rows that several runs share, extended here."""
    ids = {} if ids is None else ids

    def shared(about: object, look_up: Callable[[], int]) -> int:
        if about not in ids:
            ids[about] = look_up()
        return ids[about]

    environment, text = asdict(provenance.environment), {"text": problem.text}
    described = {"op": problem.op, "parameters": problem.values}
    return {
        "kernel_id": shared(
            (signature, provenance.source), lambda: kernel_id(connection, signature, provenance, utc_now())
        ),
        "problem_id": shared(problem.text, lambda: id_of(connection, schema.ProblemRow, text, **described)),
        "device_id": shared(provenance.device, lambda: device_id(connection, provenance.device)),
        "environment_id": shared(provenance.environment, lambda: id_of(connection, schema.EnvironmentRow, environment)),
        "policy": provenance.policy,
        "recorded": provenance.recorded,
        "definition": provenance.definition,
        "settings": dict(settings),
        "status": "running",
        "tuner": provenance.tuner,
        "started_at": utc_now(),
    }


def kernel_id(connection: Connection, signature: Signature, provenance: Provenance, created_at: str) -> int:
    """Return the id of the row of a signature and source. A missing row is written."""
    described = signature.as_json()
    kernel = {"op": signature.op, "source": provenance.source, "digest": digest(described)}
    return id_of(connection, schema.KernelRow, kernel, signature=described, created_at=created_at)


def end_run(
    connection: Connection,
    run_id: int,
    status: str,
    stopped: str,
    seconds: Mapping[str, float],
    comparison: Comparison | None,
) -> None:
    """End a run, and write the rounds of its comparison."""
    ended = {"status": status, "stopped": stopped, "seconds": dict(seconds), "ended_at": utc_now()}
    connection.execute(update(schema.RunRow).filter_by(id=run_id).values(ended))
    if comparison is None:
        return
    rounds = [
        {
            "run_id": run_id,
            "number": number,
            "latencies": dict(zip(comparison.contenders, latencies, strict=True)),
            "state": asdict(comparison.states[number]) if comparison.states else None,
        }
        for number, latencies in enumerate(comparison.rounds)
    ]
    if rounds:
        connection.execute(insert(schema.RoundRow), rounds)


def add_transfers(connection: Connection, run_id: int, lost: Iterable[tuple[int, float, float]]) -> None:
    """Write transfer losses on a run's problem; see `Store.add_answer`."""
    for answer, distance, slowdown in lost:
        measured = {"distance": distance, "slowdown": slowdown, "created_at": utc_now()}
        insert_row(connection, schema.TransferRow, run_id=run_id, from_answer_id=answer, **measured)
