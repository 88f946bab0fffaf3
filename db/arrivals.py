"""Letting in what was found elsewhere, many answers in one transaction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from sqlalchemy import Connection, insert, select

from tuner.db import schema
from tuner.db.intake import Arrival, Fate, Present, fate
from tuner.db.rows import answer_values, timed, utc_now
from tuner.db.writes import kernel_id, run_values
from tuner.kernels.spec import Problem


def let_in(connection: Connection, arrivals: Sequence[Arrival], *, replace: bool) -> list[Fate]:
    """Writes those that `intake.fate` lets in; what became of each."""
    present, fates, admitted = _present(connection, arrivals), list[Fate](), list[Arrival]()
    for arrival in arrivals:
        there = present[_key_of(arrival)]
        fates.append(fate(arrival, there, replace=replace))
        if fates[-1].stored:
            admitted.append(arrival)
            there.append(Present.of(arrival))
    _take_in(connection, admitted)
    return fates


def _take_in(connection: Connection, arrivals: Sequence[Arrival]) -> None:
    if not arrivals:
        return
    ids, now = _problem_ids(connection, [arrival.answer.problem for arrival in arrivals]), utc_now()
    for arrival in arrivals:
        # A signature is as old as what came with it, so that an old one is not taken for the newest.
        signature, provenance = arrival.signature, arrival.provenance
        if (signature, provenance.source) not in ids:
            found_at = arrival.created_at or now
            ids[signature, provenance.source] = kernel_id(connection, signature, provenance, found_at)
    ended = {"status": "done", "stopped": "imported", "seconds": {}, "ended_at": now}
    runs = [
        run_values(connection, a.signature, a.answer.problem, a.provenance, {"imported": a.origin}, ids) | ended
        for a in arrivals
    ]
    run_ids = connection.scalars(insert(schema.RunRow).returning(schema.RunRow.id, sort_by_parameter_order=True), runs)
    answers = [
        answer_values(run_id, arrival.answer, arrival.provenance, arrival.created_at or now)
        for run_id, arrival in zip(run_ids, arrivals, strict=True)
    ]
    connection.execute(insert(schema.AnswerRow), answers)


def _problem_ids(connection: Connection, problems: Sequence[Problem]) -> dict[object, int]:
    """Ids by text of the rows of many problems; those that are not there are made."""
    table, by_text = schema.ProblemRow, {problem.text: problem for problem in problems}
    query = select(table.text, table.id).where(table.text.in_(by_text))
    ids: dict[object, int] = {row.text: row.id for row in connection.execute(query)}
    new = [problem for text, problem in by_text.items() if text not in ids]
    if new:
        rows = [{"text": problem.text, "op": problem.op, "parameters": problem.values} for problem in new]
        made = connection.execute(insert(table).returning(table.text, table.id), rows)
        ids |= {row.text: row.id for row in made}
    return ids


_Key = tuple[str, str, str, str, str, str | None]
"""Problem, device, source, policy, Triton version and recorded space: of two answers that agree in these one serves."""


def _key_of(arrival: Arrival) -> _Key:
    its = arrival.provenance
    device, triton = its.device.id, its.environment.triton
    return arrival.answer.problem.text, device, its.source, its.policy, triton, its.recorded


def _present(connection: Connection, arrivals: Sequence[Arrival]) -> defaultdict[_Key, list[Present]]:
    """What is there of the problems that these are about, by key, oldest first."""
    answer, run = schema.AnswerRow, schema.RunRow
    out = select(answer.about_id).where(answer.kind == "quarantine")
    query = select(answer, run.recorded, run.settings).join(run, answer.run_id == run.id)
    about = answer.problem.in_({arrival.answer.problem.text for arrival in arrivals})
    out_of_service = set(connection.scalars(out))
    present = defaultdict[_Key, list[Present]](list)
    for row in connection.execute(query.where(about, answer.kind != "quarantine").order_by(answer.id)):
        one = Present(
            row.kind,
            row.config,
            timed(row.latency_us),
            row.created_at,
            imported="imported" in row.settings,
            in_service=row.id not in out_of_service,
        )
        key = (row.problem, row.device, row.source, row.policy, row.triton, row.recorded)
        present[key].append(one)
    return present
