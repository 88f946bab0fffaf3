"""Queries of runs, and of what belongs to them, with what each run was about, where and with what."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from sqlalchemy import Select, func, select

from tuner.db import schema
from tuner.db.rows import fingerprint
from tuner.kernels.spec import Problem
from tuner.records import Provenance


def select_trials(problem: Problem, provenance: Provenance) -> Any:
    """What was tried of this very problem, device, environment, source and policy."""
    return _with_context(select(schema.TrialRow).join(schema.RunRow, schema.TrialRow.run_id == schema.RunRow.id)).where(
        schema.ProblemRow.text == problem.text,
        schema.DeviceRow.fingerprint == fingerprint(provenance.device),
        schema.KernelRow.source == provenance.source,
        schema.RunRow.policy == provenance.policy,
        schema.RunRow.recorded.is_not_distinct_from(provenance.recorded),
        *(getattr(schema.EnvironmentRow, name) == value for name, value in asdict(provenance.environment).items()),
    )


def select_answers() -> Any:
    """Those that are not taken out of service, oldest first."""
    quarantined = select(schema.AnswerRow.about_id).where(schema.AnswerRow.kind == "quarantine")
    return (
        _with_context(
            select(
                schema.AnswerRow, schema.RunRow.settings, schema.RunRow.recorded, schema.RunRow.tuner, *_CONTEXT
            ).join(schema.RunRow, schema.AnswerRow.run_id == schema.RunRow.id)
        )
        .where(schema.AnswerRow.kind != "quarantine")
        .where(schema.AnswerRow.id.not_in(quarantined.where(schema.AnswerRow.about_id.is_not(None))))
        .order_by(schema.AnswerRow.id)
    )


def select_runs(which: Select[Any]) -> Any:
    """Those of these ids, with their first answers' latencies; the newest first."""
    ids = (
        select(func.min(schema.AnswerRow.id))
        .where(schema.AnswerRow.run_id.in_(which))
        .group_by(schema.AnswerRow.run_id)
    )
    first = select(schema.AnswerRow.run_id, schema.AnswerRow.latency_us).where(schema.AnswerRow.id.in_(ids)).subquery()
    runs = select(schema.RunRow, schema.KernelRow.source, *_CONTEXT, first.c.latency_us.label("answer_us"))
    with_answers = _with_context(runs).outerjoin(first, first.c.run_id == schema.RunRow.id)
    return with_answers.where(schema.RunRow.id.in_(which)).order_by(schema.RunRow.id.desc())


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
"""What a run was about, where and with what, and how many configs it measured."""


def _with_context(query: Any) -> Any:
    """A query of runs, or of what belongs to them, with the tables that runs point to."""
    return (
        query.join(schema.KernelRow, schema.RunRow.kernel_id == schema.KernelRow.id)
        .join(schema.ProblemRow, schema.RunRow.problem_id == schema.ProblemRow.id)
        .join(schema.DeviceRow, schema.RunRow.device_id == schema.DeviceRow.id)
        .join(schema.EnvironmentRow, schema.RunRow.environment_id == schema.EnvironmentRow.id)
    )
