"""Rows from plain values and back. Nothing here reads the database."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime
from functools import cache
from math import inf
from typing import Any

from sqlalchemy import Row

from tuner.db.settings import SETTINGS
from tuner.db.unreadable import is_finite
from tuner.errors import UsageError
from tuner.kernels.spec import Signature
from tuner.records import (
    Answer,
    CardState,
    Comparison,
    Device,
    EarlierSearch,
    Environment,
    Measurement,
    Provenance,
    RooflineLimits,
    StoredAnswer,
    StoredRun,
    Transfer,
)
from tuner.records.codec import answer_of, device_from_json, measurement_of, plain, transfer_from_json
from tuner.records.signatures import signature_from_json, stored_problem
from tuner.records.strict import JsonObject, whole_number


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
    """Return the measurement of a row of `trials`.

    Raises:
        UsageError: The row cannot be read.
    """
    values = {each.name: getattr(row, each.name) for each in fields(Measurement)}
    return measurement_of(JsonObject(values, "a trial"), signature)


def round_from(row: Row[Any]) -> tuple[dict[str, float], CardState | None]:
    """Return latency by contender and card state of a row of `rounds`.

    Raises:
        UsageError: The row cannot be read.
    """
    given = JsonObject(dict(row._mapping), "a round")
    given.whole("number")
    latencies = given.object("latencies")
    for contender in latencies.data:
        latencies.positive(contender)
    if not latencies.data:
        raise UsageError("a round has the latency of each contender, and here are none")
    state = given.optional("state", given.mapping)
    return latencies.data, None if state is None else CardState.from_json(state)


def comparison_of(rounds: Sequence[tuple[Mapping[str, float], CardState | None]]) -> Comparison | None:
    """Return the comparison of these rounds, or None if there are none. Those of other contenders are left out."""
    if not rounds:
        return None
    contenders, states = tuple(rounds[0][0]), tuple(state for _, state in rounds if state is not None)
    same = [latencies for latencies, _ in rounds if latencies.keys() == {*contenders}]
    return Comparison(contenders, tuple(tuple(each[name] for name in contenders) for each in same), states)


def kernel_from(row: Row[Any]) -> tuple[str, Signature]:
    """Return op and signature of a row of `kernels`.

    Raises:
        UsageError: The row cannot be read.
    """
    signature = signature_from_json(row.signature)
    if row.op != signature.op:
        raise UsageError(f"its op is {str(row.op)[:80]!r}, and its signature is that of {signature.op}")
    return signature.op, signature


def device_from(row: Row[Any]) -> Device:
    """Return the device of a row of `devices`. Raises UsageError if it cannot be read."""
    return device_from_json(row.facts)


def roofline_limits_from(row: Row[Any]) -> RooflineLimits | None:
    """Return the roofline limits of a row of `devices`, or None if they were not measured.

    Raises:
        UsageError: The row cannot be read.
    """
    if row.roofline_limits is None:
        return None
    given = JsonObject(row.roofline_limits, "roofline limits")
    tables = {name: given.object(name) for name in ("tflops", "launch_us")}
    rates = {name: {key: table.positive(key) for key in table.data} for name, table in tables.items()}
    return RooflineLimits(given.positive("copy_gb_per_s"), rates["tflops"], rates["launch_us"])


def transfer_from(row: Row[Any]) -> tuple[tuple[str, str], Transfer]:
    """Return op and device, and the transfer, of a row of `queries.select_transfers`.

    Raises:
        UsageError: The row cannot be read.
    """
    slowdown = None if row.slowdown == inf else row.slowdown
    transfer = transfer_from_json([row.id, row.from_answer_id, row.to_answer, row.distance, slowdown])
    if row.slowdown is None:
        raise UsageError("a transfer has a slowdown, and here it is missing")
    return (row.op, row.device), transfer


def settled(measured: Iterable[tuple[str, Measurement]]) -> list[Measurement]:
    """Return the newest measurement of each config that need not be tried again.

    Args:
        measured: Text of the config and measurement of each trial, oldest first.
    """
    tried: dict[str, list[Measurement]] = {}
    for text, measurement in measured:
        tried.setdefault(text, []).append(measurement)
    known = []
    for tries in tried.values():
        permanent = [measurement for measurement in tries if measurement.outcome.permanent]
        if permanent or len(tries) >= SETTINGS.config_tries:
            known.append((permanent or tries)[-1])
    return known


def answer_from(row: Row[Any], signature: Signature, provenance: Provenance) -> StoredAnswer:
    """Return the answer of a row of `queries.select_answers`.

    Raises:
        UsageError: The row cannot be read.
    """
    values = row._asdict()
    values |= {name: None for name, null in _answer_nulls() if values[name] == null}
    given = JsonObject(values | {"problem": row.parameters}, "an answer")
    settings, answer = given.mapping("settings"), answer_of(given, signature)
    if not is_finite(settings):
        raise UsageError(f"settings has finite numbers, not {str(settings)[:80]}")
    context = ("problem", row.problem, answer.problem.text), ("device", row.device, provenance.device.id)
    for name, said, is_so in context:
        if said != is_so:
            raise UsageError(f"an answer's {name} is that of its run, {is_so!r}, not {str(said)[:80]!r}")
    return StoredAnswer(
        id=row.id,
        answer=answer,
        provenance=provenance,
        created_at=given.text("created_at"),
        run_id=given.whole("run_id"),
        trials=given.whole("trials") + _known(settings),
        settings=settings,
        forgotten_at=given.optional("forgotten_at", given.text),
        signature=signature,
    )


@cache
def _answer_nulls() -> Sequence[tuple[str, Any]]:
    """Return the fields of an answer with a column of their own in which another value stands for None, and which."""
    nulls = {each.name: plain(each.metadata["null"]) for each in fields(Answer) if each.name != "problem"}
    return [(name, null) for name, null in nulls.items() if null is not None]


def _known(settings: Mapping[str, Any]) -> int:
    return whole_number(settings.get("known", 0), "known")


def earlier_search_from(row: Row[Any], tried: Iterable[str]) -> EarlierSearch:
    """Return the search of a row of `runs` that measured these configs.

    Raises:
        UsageError: The row cannot be read.
    """
    return EarlierSearch(JsonObject(dict(row._mapping), "a run").mapping("settings"), frozenset(tried))


def run_from(row: Row[Any], signature: Signature, provenance: Provenance) -> StoredRun:
    """Return the run of a row of `queries.select_runs`.

    Raises:
        UsageError: The row cannot be read.
    """
    given = JsonObject(dict(row._mapping), "a run")
    settings = given.mapping("settings")
    _known(settings)
    seconds = JsonObject(given.optional("seconds", given.mapping) or {}, "seconds")
    return StoredRun(
        id=row.id,
        signature=signature,
        problem=stored_problem(signature, given.mapping("parameters")),
        provenance=provenance,
        settings=settings,
        status=given.text("status"),
        stopped=given.optional("stopped", given.text),
        seconds={name: seconds.number(name) for name in seconds.data},
        started_at=given.text("started_at"),
        ended_at=given.optional("ended_at", given.text),
        trials=given.whole("trials"),
        answer_us=None if timed(row.answer_us) is None else given.positive("answer_us"),
    )


PROVENANCE = ("triton", "ptxas", "torch", "driver", "source", "policy", "recorded", "tuner", "definition")
"""Columns of the provenance of an answer or a run, besides the device."""


def provenance_from(row: Row[Any], device: Device) -> Provenance:
    """Return the provenance of a row of answers or runs.

    Raises:
        UsageError: The row cannot be read.
    """
    given = JsonObject({name: getattr(row, name) for name in PROVENANCE}, "a provenance")
    return Provenance(
        device=device,
        environment=Environment(**{name: given.any_text(name) for name in ("triton", "ptxas", "torch", "driver")}),
        source=given.any_text("source"),
        policy=given.any_text("policy"),
        recorded=given.optional("recorded", given.any_text),
        tuner=given.any_text("tuner"),
        definition=given.any_text("definition"),
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
