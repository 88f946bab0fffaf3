"""Storing imported answers, many in one transaction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import astuple
from typing import Any

from sqlalchemy import Connection, Row, insert, select

from tuner.db import schema
from tuner.db.import_rules import ExistingAnswer, ImportedAnswer, ImportOutcome, outcome_of
from tuner.db.pins import pinned_scopes, scope_of
from tuner.db.queries import in_service
from tuner.db.rows import answer_values, fingerprint, timed, utc_now
from tuner.db.unreadable import UnreadableRows
from tuner.db.writes import INSERTS, device_id, environment_id, kernel_id, run_values
from tuner.kernels.spec import Problem
from tuner.records import FORGOTTEN
from tuner.records.strict import JsonObject


def write_imported(
    connection: Connection, imported: Sequence[ImportedAnswer], unreadable: UnreadableRows, *, replace: bool
) -> list[ImportOutcome]:
    """Write those of the answers that `outcome_of` lets pass, and return the outcome of each."""
    existing = _existing(connection, imported, unreadable)
    pinned = pinned_scopes(connection, {one.answer.problem.text for one in imported})
    outcomes, passed = list[ImportOutcome](), list[ImportedAnswer]()
    for one in imported:
        of_its_key = existing[_key_of(one)]
        is_pinned = scope_of(one.answer.problem, one.provenance) in pinned
        outcomes.append(outcome_of(one, of_its_key, replace=replace, is_pinned=is_pinned))
        if outcomes[-1].is_stored:
            passed.append(one)
            of_its_key.append(ExistingAnswer.of(one))
    _write(connection, passed)
    return outcomes


def _write(connection: Connection, imported: Sequence[ImportedAnswer]) -> None:
    """Write the answers, each with a run that ended as `imported`."""
    if not imported:
        return
    ids, now = _shared_rows(connection, imported, utc_now()), utc_now()
    ended = {"status": "done", "stopped": "imported", "seconds": {}, "ended_at": now}
    runs = [
        run_values(connection, one.signature, one.answer.problem, one.provenance, {"imported": one.origin}, ids) | ended
        for one in imported
    ]
    run_ids = connection.scalars(insert(schema.RunRow).returning(schema.RunRow.id, sort_by_parameter_order=True), runs)
    answers = [
        answer_values(run_id, one.answer, one.provenance, one.created_at or now)
        for run_id, one in zip(run_ids, imported, strict=True)
    ]
    connection.execute(insert(schema.AnswerRow), answers)


def _shared_rows(connection: Connection, imported: Sequence[ImportedAnswer], now: str) -> dict[object, int]:
    """Return the ids of the rows that the runs share, as `run_values` takes them. Missing rows are written in order."""
    ids = dict[object, int]()
    for one in sorted(imported, key=lambda one: (one.signature.op, one.provenance.source)):
        # A signature is as old as its answer, so that an old one is not taken for the newest.
        if (one.signature, one.provenance.source) not in ids:
            found_at = one.created_at or now
            ids[one.signature, one.provenance.source] = kernel_id(connection, one.signature, one.provenance, found_at)
    ids |= _problem_ids(connection, [one.answer.problem for one in imported])
    for device in sorted({one.provenance.device for one in imported}, key=fingerprint):
        ids[device] = device_id(connection, device)
    for environment in sorted({one.provenance.environment for one in imported}, key=astuple):
        ids[environment] = environment_id(connection, environment)
    return ids


def _problem_ids(connection: Connection, problems: Sequence[Problem]) -> dict[object, int]:
    """Return the ids of the rows of many problems, by text. Missing rows are written in the order of their texts."""
    table, by_text = schema.ProblemRow, {problem.text: problem for problem in problems}
    query = select(table.text, table.id).where(table.text.in_(by_text))
    ids: dict[object, int] = {row.text: row.id for row in connection.execute(query)}
    new = [by_text[text] for text in sorted(by_text.keys() - ids.keys())]
    if new:
        rows = [{"text": problem.text, "op": problem.op, "parameters": problem.values} for problem in new]
        connection.execute(INSERTS[connection.dialect.name](table).on_conflict_do_nothing(), rows)
        ids |= {row.text: row.id for row in connection.execute(query)}
    return ids


_Key = tuple[str, str, str, str, str, str | None]
"""Problem, device, source, policy, Triton version and recorded space. One answer of each key serves."""


def _key_of(imported: ImportedAnswer) -> _Key:
    provenance = imported.provenance
    device, triton = provenance.device.id, provenance.environment.triton
    return imported.answer.problem.text, device, provenance.source, provenance.policy, triton, provenance.recorded


def _existing(
    connection: Connection, imported: Sequence[ImportedAnswer], unreadable: UnreadableRows
) -> defaultdict[_Key, list[ExistingAnswer]]:
    """Return the stored answers of the problems that are imported, by key, oldest first."""
    answer, run = schema.AnswerRow, schema.RunRow
    query = select(answer, run.recorded, run.definition, run.settings).join(run, answer.run_id == run.id)
    of_these = answer.problem.in_({one.answer.problem.text for one in imported})
    query = query.where(answer.kind != FORGOTTEN, in_service())
    existing = defaultdict[_Key, list[ExistingAnswer]](list)
    rows = connection.execute(query.where(of_these).order_by(answer.id))
    for key, one in unreadable.read("answers", rows, _existing_answer):
        existing[key].append(one)
    return existing


def _existing_answer(row: Row[Any]) -> tuple[_Key, ExistingAnswer]:
    given = JsonObject(dict(row._mapping), "an answer")
    key = (row.problem, row.device, row.source, row.policy, row.triton, row.recorded)
    latency_us = None if timed(row.latency_us) is None else given.positive("latency_us")
    config, imported = given.mapping("config"), "imported" in given.mapping("settings")
    return key, ExistingAnswer(
        given.text("kind"), config, latency_us, given.text("created_at"), imported, row.definition
    )
