"""Queries of runs, trials and answers, each with its context: kernel, problem, device and environment."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from sqlalchemy import Select, func, select

from tuner.db import schema
from tuner.db.rows import fingerprint
from tuner.kernels.spec import Problem
from tuner.records import Provenance


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
