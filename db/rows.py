"""Rows from plain values and back. Nothing here reads the database."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, fields
from datetime import UTC, datetime
from functools import cache
from math import inf
from typing import Any

from sqlalchemy import Row

from tuner.db.settings import SETTINGS
from tuner.kernels.spec import Config, Signature
from tuner.records import (
    Answer,
    Device,
    Environment,
    Evidence,
    Interval,
    Measurement,
    Outcome,
    Provenance,
    StoredAnswer,
    StoredRun,
    Tie,
)
from tuner.records.codec import plain, types_of


def answer_values(run_id: int, answer: Answer, provenance: Provenance, created_at: str) -> dict[str, Any]:
    """Return the row of an answer: its fields, and the key that is queried."""
    values = {each.name: plain(getattr(answer, each.name)) for each in fields(Answer)}
    nulls = {each.name: plain(each.metadata["null"]) for each in fields(Answer) if values[each.name] is None}
    return {
        **values,
        **nulls,
        "run_id": run_id,
        "op": answer.problem.op,
        "problem": answer.problem.text,
        "device": provenance.device.id,
        "source": provenance.source,
        "policy": provenance.policy,
        "triton": provenance.environment.triton,
        "created_at": created_at,
    }


def trial_values(measurement: Measurement) -> dict[str, Any]:
    """Return the row of a trial that ends now, without its run and the config's text."""
    latency_us = measurement.latency_us if measurement.ok else None
    return {**plain(measurement), "outcome": str(measurement.outcome), "latency_us": latency_us, "ended_at": utc_now()}


def measurement_from(signature: Signature, row: Row[Any]) -> Measurement:
    """Return the measurement of a row of `trials`."""
    values = {each.name: getattr(row, each.name) for each in fields(Measurement)}
    typed = {"config": signature.config(row.config), "outcome": Outcome(row.outcome), "samples": tuple(row.samples)}
    return Measurement(**values | typed)


def settled(signature: Signature, rows: Iterable[Row[Any]]) -> list[Measurement]:
    """Return the newest measurement of each config that need not be tried again; `rows` are trials, oldest first."""
    tried: dict[str, list[Measurement]] = {}
    for row in rows:
        tried.setdefault(row.config_text, []).append(measurement_from(signature, row))
    known = []
    for tries in tried.values():
        permanent = [measurement for measurement in tries if measurement.outcome.permanent]
        if permanent or len(tries) >= SETTINGS.config_tries:
            known.append((permanent or tries)[-1])
    return known


def answer_from(row: Row[Any], signature: Signature) -> StoredAnswer:
    """Return the answer of a row of `queries.select_answers`."""
    values = {name: _restored(getattr(row, name), null, read, signature) for name, null, read in _answer_columns()}
    return StoredAnswer(
        id=row.id,
        answer=Answer(problem=signature.problem(row.parameters), **values),
        provenance=provenance_from(row),
        created_at=row.created_at,
        run_id=row.run_id,
        trials=row.trials + row.settings.get("known", 0),
        settings=row.settings,
    )


_Reader = Callable[[Any, Signature], Any]
_READERS: Mapping[Any, _Reader] = {
    Config: lambda value, signature: signature.config(value),
    Interval | None: lambda value, _: tuple(value),
    tuple[str, ...]: lambda value, _: tuple(value),
    tuple[Tie, ...]: lambda value, signature: tuple(
        Tie(signature.config(tie["config"]), tie["slowdown"], tuple(tie["interval"])) for tie in value
    ),
    Evidence: lambda value, _: Evidence(**value | {"inputs": tuple(value.get("inputs", ()))}),
}
"""Conversions of what a column holds, by the type of the field; other types are as they are stored."""


@cache
def _answer_columns() -> list[tuple[str, Any, _Reader | None]]:
    """Return the name of each field with a column of its own, the value that stands for None, and the conversion."""
    types, named = types_of(Answer), (each for each in fields(Answer) if each.name != "problem")
    return [(each.name, plain(each.metadata["null"]), _READERS.get(types[each.name])) for each in named]


def _restored(value: Any, null: Any, read: _Reader | None, signature: Signature) -> Any:
    if value is None or value == null:
        return None
    return value if read is None else read(value, signature)


def run_from(row: Row[Any]) -> StoredRun:
    """Return the run of a row of `queries.select_runs`."""
    signature = Signature.from_json(row.signature)
    return StoredRun(
        id=row.id,
        signature=signature,
        problem=signature.problem(row.parameters),
        provenance=provenance_from(row),
        settings=row.settings,
        status=row.status,
        stopped=row.stopped,
        seconds=row.seconds or {},
        started_at=row.started_at,
        ended_at=row.ended_at,
        trials=row.trials,
        answer_us=timed(row.answer_us),
    )


def provenance_from(row: Row[Any]) -> Provenance:
    """Return the provenance of a row of answers or runs."""
    return Provenance(
        device=Device.from_json(row.facts),
        environment=Environment(row.triton, row.ptxas, row.torch, row.driver),
        source=row.source,
        policy=row.policy,
        recorded=row.recorded,
        tuner=row.tuner,
    )


def timed(latency_us: float | None) -> float | None:
    """Return a stored latency; None if it is null or infinite."""
    return None if latency_us in (None, inf) else latency_us


def fingerprint(device: Device) -> str:
    """Return all fields of a device as one canonical text."""
    return json.dumps(asdict(device), sort_keys=True)


def digest(data: Mapping[str, Any]) -> str:
    """Return a short hash of the content."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]


def utc_now() -> str:
    """Return the time by the clock of this host."""
    return utc_text(datetime.now(UTC))


def utc_text(moment: datetime) -> str:
    """Return a moment as columns have it: ISO 8601, whose texts order by time."""
    return moment.isoformat(timespec="milliseconds")
