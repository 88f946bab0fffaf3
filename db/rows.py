"""Between rows and plain values, both ways. Nothing here asks the database."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from math import inf
from typing import Any

from sqlalchemy import Row

from tuner.kernels.spec import Signature
from tuner.records import (
    Answer,
    Device,
    Environment,
    Evidence,
    Measurement,
    Outcome,
    Provenance,
    StoredAnswer,
    StoredRun,
    Tie,
)

_TRIES = 2
"""A config that crashed, hung or ran out of memory is tried again in a later run, so many times in all."""


def answer_values(run_id: int, answer: Answer, provenance: Provenance, created_at: str) -> dict[str, Any]:
    """The row of an answer."""
    return {
        "run_id": run_id,
        "kind": answer.kind,
        "op": answer.problem.op,
        "problem": answer.problem.text,
        "device": provenance.device.id,
        "source": provenance.source,
        "policy": provenance.policy,
        "triton": provenance.environment.triton,
        "config": dict(answer.config),
        "latency_us": inf if answer.latency_us is None else answer.latency_us,
        "interval_us": list(answer.interval_us or ()),
        "speedup": answer.speedup,
        "speedup_interval": answer.speedup_interval,
        "default_latency_us": answer.default_latency_us,
        "vendor_latency_us": answer.vendor_latency_us,
        "ties": [{**asdict(tie), "config": dict(tie.config)} for tie in answer.ties],
        "unresolved": answer.unresolved,
        "flops": answer.flops,
        "bytes": answer.bytes,
        "evidence": asdict(answer.evidence),
        "marks": list(answer.marks),
        "created_at": created_at,
    }


def trial_values(measurement: Measurement) -> dict[str, Any]:
    """The row of a trial that ends now, but for whose it is."""
    return {
        "config": dict(measurement.config),
        "outcome": str(measurement.outcome),
        "stage": measurement.stage,
        "error": measurement.error,
        "latency_us": measurement.latency_us if measurement.ok else None,
        "samples": list(measurement.samples),
        "compile_s": measurement.compile_s,
        "compiled_by": measurement.compiled_by,
        "registers": measurement.registers,
        "spills": measurement.spills,
        "shared_bytes": measurement.shared_bytes,
        "max_error": measurement.max_error,
        "tolerance": measurement.tolerance,
        "ended_at": utc_now(),
    }


def measurement_from(signature: Signature, row: Row[Any]) -> Measurement:
    """What a row of `trials` says."""
    return Measurement(
        config=signature.config(row.config),
        outcome=Outcome(row.outcome),
        samples=tuple(row.samples),
        stage=row.stage,
        error=row.error,
        compile_s=row.compile_s,
        compiled_by=row.compiled_by,
        registers=row.registers,
        spills=row.spills,
        shared_bytes=row.shared_bytes,
        max_error=row.max_error,
        tolerance=row.tolerance,
    )


def settled(signature: Signature, rows: Iterable[Row[Any]]) -> list[Measurement]:
    """Of every config the newest that a later run takes over; `rows` are trials, oldest first."""
    tried: dict[str, list[Measurement]] = {}
    for row in rows:
        tried.setdefault(row.config_text, []).append(measurement_from(signature, row))
    known = []
    for tries in tried.values():
        permanent = [measurement for measurement in tries if measurement.outcome.permanent]
        if permanent or len(tries) >= _TRIES:
            known.append((permanent or tries)[-1])
    return known


def answer_from(row: Row[Any], signature: Signature) -> StoredAnswer:
    """What a row of `queries.select_answers` says."""
    return StoredAnswer(
        id=row.id,
        answer=Answer(
            problem=signature.problem(row.parameters),
            kind=row.kind,
            config=signature.config(row.config),
            latency_us=timed(row.latency_us),
            interval_us=tuple(row.interval_us) or None,
            speedup=row.speedup,
            speedup_interval=None if row.speedup_interval is None else tuple(row.speedup_interval),
            default_latency_us=row.default_latency_us,
            vendor_latency_us=row.vendor_latency_us,
            ties=tuple(Tie(signature.config(t["config"]), t["slowdown"], tuple(t["interval"])) for t in row.ties),
            unresolved=row.unresolved,
            evidence=Evidence(**row.evidence | {"inputs": tuple(row.evidence.get("inputs", ()))}),
            marks=tuple(row.marks),
            flops=row.flops,
            bytes=row.bytes,
        ),
        provenance=provenance_from(row),
        created_at=row.created_at,
        run_id=row.run_id,
        trials=row.trials + row.settings.get("known", 0),
        settings=row.settings,
    )


def run_from(row: Row[Any]) -> StoredRun:
    """What a row of `queries.select_runs` says."""
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
    """What a row of either says of where it comes from."""
    return Provenance(
        device=device_from(row.facts),
        environment=Environment(row.triton, row.ptxas, row.torch, row.driver),
        source=row.source,
        policy=row.policy,
        recorded=row.recorded,
        tuner=row.tuner,
    )


def device_from(facts: Mapping[str, Any]) -> Device:
    """The card that a row of `devices` describes."""
    return Device(**{**facts, "capability": tuple(facts["capability"])})


def timed(latency_us: float | None) -> float | None:
    """A latency as it is stored; None where there is none."""
    return None if latency_us in (None, inf) else latency_us


def fingerprint(device: Device) -> str:
    """All that a card is, as one text."""
    return json.dumps(asdict(device), sort_keys=True)


def digest(data: Mapping[str, Any]) -> str:
    """A short name of this content."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]


def utc_now() -> str:
    """This moment, by the clock of this host."""
    return utc_text(datetime.now(UTC))


def utc_text(moment: datetime) -> str:
    """A moment as every column has it: ISO 8601, which orders alike as text."""
    return moment.isoformat(timespec="milliseconds")
