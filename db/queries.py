"""Queries of runs, trials and answers, each with its context: kernel, problem, device and environment."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, Select, func, select
from sqlalchemy.orm import aliased

from tuner.db import schema
from tuner.db.rows import answer_from, fingerprint
from tuner.kernels.spec import Problem, Signature
from tuner.records import Provenance, StoredAnswer


def select_trials(problem: Problem, provenance: Provenance) -> Any:
    """Return the query of the trials of exactly this problem, device, environment, source and policy."""
    return _with_context(select(schema.TrialRow).join(schema.RunRow, schema.TrialRow.run_id == schema.RunRow.id)).where(
        schema.ProblemRow.text == problem.text,
        schema.DeviceRow.fingerprint == fingerprint(provenance.device),
        schema.KernelRow.source == provenance.source,
        schema.RunRow.policy == provenance.policy,
        schema.RunRow.recorded.is_not_distinct_from(provenance.recorded),
        *(getattr(schema.EnvironmentRow, name) == value for name, value in asdict(provenance.environment).items()),
    )


def select_answers() -> Any:
    """Return the query of all answers with their context, oldest first."""
    columns = (schema.AnswerRow, schema.RunRow.settings, schema.RunRow.recorded, schema.RunRow.tuner, *_CONTEXT)
    query = select(*columns).join(schema.RunRow, schema.AnswerRow.run_id == schema.RunRow.id)
    return _with_context(query).order_by(schema.AnswerRow.id)


def answers_of(connection: Connection, query: Any) -> list[StoredAnswer]:
    """Return the answers of a query of `select_answers`. A signature that many of them have is read once."""
    light = [column for column in query.selected_columns if column.key != "signature"]
    kernels = select(schema.KernelRow.id, schema.KernelRow.signature)
    signatures = {row.id: Signature.from_json(row.signature) for row in connection.execute(kernels)}
    rows = connection.execute(query.with_only_columns(*light, schema.RunRow.kernel_id, maintain_column_froms=True))
    return [answer_from(row, signatures[row.kernel_id]) for row in rows]


def select_transfers(after: int, upto: int, op: str | None, device: str | None) -> Any:
    """Return the query of transfers with ids above `after` and up to `upto`, each with its op, device and answers."""
    table, source, target = schema.TransferRow, aliased(schema.AnswerRow), aliased(schema.AnswerRow)
    same = (source.op == target.op) & (source.device == target.device)
    query = (
        select(table, target.op, target.device, target.id.label("to_answer"))
        .join(target, (target.run_id == table.run_id) & target.kind.in_(("tuned", "default")))
        .join(source, (source.id == table.from_answer_id) & same)
        .where(table.id > after, table.id <= upto)
        .order_by(table.id)
    )
    if op is not None:
        query = query.where(target.op == op)
    return query if device is None else query.where(target.device == device)


def select_runs(ids: Select[Any]) -> Any:
    """Return the query of the runs with these ids, each with the latency of its first answer; newest first."""
    first_ids = (
        select(func.min(schema.AnswerRow.id)).where(schema.AnswerRow.run_id.in_(ids)).group_by(schema.AnswerRow.run_id)
    )
    latencies = select(schema.AnswerRow.run_id, schema.AnswerRow.latency_us)
    first = latencies.where(schema.AnswerRow.id.in_(first_ids)).subquery()
    runs = select(schema.RunRow, schema.KernelRow.source, *_CONTEXT, first.c.latency_us.label("answer_us"))
    with_answers = _with_context(runs).outerjoin(first, first.c.run_id == schema.RunRow.id)
    return with_answers.where(schema.RunRow.id.in_(ids)).order_by(schema.RunRow.id.desc())


_CONTEXT = (
    schema.KernelRow.signature,
    schema.ProblemRow.parameters,
    schema.DeviceRow.facts,
    schema.EnvironmentRow.triton,
    schema.EnvironmentRow.ptxas,
    schema.EnvironmentRow.torch,
    schema.EnvironmentRow.driver,
    select(func.count()).where(schema.TrialRow.run_id == schema.RunRow.id).scalar_subquery().label("trials"),
)
"""Columns of the context, and the number of configs that the run measured."""


def _with_context(query: Any) -> Any:
    """Return a query of runs, or of rows of runs, joined with the tables that runs point to."""
    return (
        query.join(schema.KernelRow, schema.RunRow.kernel_id == schema.KernelRow.id)
        .join(schema.ProblemRow, schema.RunRow.problem_id == schema.ProblemRow.id)
        .join(schema.DeviceRow, schema.RunRow.device_id == schema.DeviceRow.id)
        .join(schema.EnvironmentRow, schema.RunRow.environment_id == schema.EnvironmentRow.id)
    )
