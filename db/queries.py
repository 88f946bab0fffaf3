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
    return _with_context(select(schema.Trial).join(schema.Run, schema.Trial.run_id == schema.Run.id)).where(
        schema.Problem.text == problem.text,
        schema.Device.fingerprint == fingerprint(provenance.device),
        schema.Kernel.source == provenance.source,
        schema.Run.policy == provenance.policy,
        schema.Run.recorded.is_not_distinct_from(provenance.recorded),
        *(getattr(schema.Environment, name) == value for name, value in asdict(provenance.environment).items()),
    )


def select_answers() -> Any:
    """Those that are not taken out of service, oldest first."""
    quarantined = select(schema.Answer.about_id).where(schema.Answer.kind == "quarantine")
    return (
        _with_context(
            select(schema.Answer, schema.Run.settings, schema.Run.recorded, schema.Run.tuner, *_CONTEXT).join(
                schema.Run, schema.Answer.run_id == schema.Run.id
            )
        )
        .where(schema.Answer.kind != "quarantine")
        .where(schema.Answer.id.not_in(quarantined.where(schema.Answer.about_id.is_not(None))))
        .order_by(schema.Answer.id)
    )


def select_runs(which: Select[Any]) -> Any:
    """Those of these ids, with their first answers' latencies; the newest first."""
    ids = select(func.min(schema.Answer.id)).where(schema.Answer.run_id.in_(which)).group_by(schema.Answer.run_id)
    first = select(schema.Answer.run_id, schema.Answer.latency_us).where(schema.Answer.id.in_(ids)).subquery()
    runs = select(schema.Run, schema.Kernel.source, *_CONTEXT, first.c.latency_us.label("answer_us"))
    with_answers = _with_context(runs).outerjoin(first, first.c.run_id == schema.Run.id)
    return with_answers.where(schema.Run.id.in_(which)).order_by(schema.Run.id.desc())


_CONTEXT = (
    schema.Kernel.signature,
    schema.Problem.parameters,
    schema.Device.facts,
    schema.Environment.triton,
    schema.Environment.ptxas,
    schema.Environment.torch,
    schema.Environment.driver,
    select(func.count()).where(schema.Trial.run_id == schema.Run.id).scalar_subquery().label("trials"),
)
"""What a run was about, where and with what, and how many configs it measured."""


def _with_context(query: Any) -> Any:
    """A query of runs, or of what belongs to them, with the tables that runs point to."""
    return (
        query.join(schema.Kernel, schema.Run.kernel_id == schema.Kernel.id)
        .join(schema.Problem, schema.Run.problem_id == schema.Problem.id)
        .join(schema.Device, schema.Run.device_id == schema.Device.id)
        .join(schema.Environment, schema.Run.environment_id == schema.Environment.id)
    )
