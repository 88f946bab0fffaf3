"""Writes inside a transaction: rows, and the rows that they point to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from tuner.db import schema
from tuner.db.rows import digest, fingerprint, utc_now
from tuner.kernels.spec import Problem, Signature
from tuner.records import VENDOR, VENDOR_NAME, Comparison, Device, Environment, Provenance

INSERTS: Mapping[str, Callable[[Any], sqlite.Insert | postgresql.Insert]] = {
    "sqlite": sqlite.insert,
    "postgresql": postgresql.insert,
}
"""Functions that make an insertion with `ON CONFLICT`, by dialect."""


def insert_row(connection: Connection, table: type[schema.Base], **values: Any) -> int:
    """Write a row and return its id."""
    _check_turn(connection, table)
    row = connection.execute(insert(table).returning(table.id), values).one()  # type: ignore[attr-defined]
    return int(row[0])


def insert_missing(connection: Connection, table: type[schema.Base], **values: Any) -> int | None:
    """Write a row and return its id; return None if a unique constraint has another row in its place.

    Waits for a transaction that is writing such a row.
    """
    _check_turn(connection, table)
    row = INSERTS[connection.dialect.name](table).values(values).on_conflict_do_nothing()
    written = connection.scalar(row.returning(table.id))  # type: ignore[attr-defined]
    return None if written is None else int(written)


def _check_turn(connection: Connection, table: type[schema.Base]) -> None:
    has_turn = connection.get_execution_options().get("has_turn", False)
    assert has_turn or table not in schema.IN_COMMIT_ORDER, f"{table.__tablename__} are read by id"


def id_of(connection: Connection, table: type[schema.Base], unique: Mapping[str, Any], **others: Any) -> int:
    """Return the id of the row with these unique values. A missing row is written, by one of several writers at once.

    The table is one whose rows are never removed.
    """
    query = select(table.id).filter_by(**unique)  # type: ignore[attr-defined]
    found = connection.scalar(query)
    if found is None:  # asked first, since each attempt to insert uses up an id
        found = insert_missing(connection, table, **unique, **others)
    return int(connection.execute(query).scalar_one() if found is None else found)


def device_id(connection: Connection, device: Device) -> int:
    """Return the id of a device's row. A missing row is written."""
    known_as = {"slug": device.id, "fingerprint": fingerprint(device)}
    return id_of(connection, schema.DeviceRow, known_as, facts=asdict(device), roofline_limits=None)


def environment_id(connection: Connection, environment: Environment) -> int:
    """Return the id of an environment's row. A missing row is written."""
    return id_of(connection, schema.EnvironmentRow, asdict(environment))


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

    text = {"text": problem.text}
    described = {"op": problem.op, "parameters": problem.values}
    return {
        "kernel_id": shared(
            (signature, provenance.source), lambda: kernel_id(connection, signature, provenance, utc_now())
        ),
        "problem_id": shared(problem.text, lambda: id_of(connection, schema.ProblemRow, text, **described)),
        "device_id": shared(provenance.device, lambda: device_id(connection, provenance.device)),
        "environment_id": shared(provenance.environment, lambda: environment_id(connection, provenance.environment)),
        "policy": provenance.policy,
        "recorded": provenance.recorded,
        "definition": provenance.definition,
        "settings": dict(settings),
        "status": "running",
        "tuner": provenance.tuner,
        "started_at": utc_now(),
    }


def known_kernel(connection: Connection, signature: Signature, source: str) -> int | None:
    """Return the id of the row of a signature and source, or None if there is none."""
    return connection.scalar(select(schema.KernelRow.id).filter_by(**_kernel(signature, source)))


def kernel_id(connection: Connection, signature: Signature, provenance: Provenance, created_at: str) -> int:
    """Return the id of the row of a signature and source. A missing row is written."""
    unique = _kernel(signature, provenance.source)
    return id_of(connection, schema.KernelRow, unique, signature=signature.as_json(), created_at=created_at)


def _kernel(signature: Signature, source: str) -> dict[str, str]:
    return {"op": signature.op, "source": source, "digest": digest(signature.as_json())}


def end_run(
    connection: Connection,
    run_id: int,
    status: str,
    stopped: str,
    seconds: Mapping[str, float],
    comparison: Comparison | None,
) -> None:
    """End a run, and write the rounds of its comparison, and its vendor's name into the settings of the run."""
    ended = {"status": status, "stopped": stopped, "seconds": dict(seconds), "ended_at": utc_now()}
    connection.execute(update(schema.RunRow).filter_by(id=run_id).values(ended))
    if comparison is None:
        return
    if comparison.vendor:
        settings = connection.scalar(select(schema.RunRow.settings).filter_by(id=run_id)) or {}
        if settings.get(VENDOR, VENDOR_NAME) != comparison.vendor:
            named = {"settings": {**settings, VENDOR: comparison.vendor}}
            connection.execute(update(schema.RunRow).filter_by(id=run_id).values(named))
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
