"""A job of the queue, and how it is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row

from tuner.db import schema
from tuner.db.unreadable import column_values


@dataclass(frozen=True)
class Job:
    """A problem to be tuned; `schema.JobRow` describes the fields."""

    id: int
    op: str
    problem: str
    device: str
    priority: int
    status: str
    tries: int
    worker: str | None
    lease_until: str | None
    error: str | None
    run_id: int | None
    created_at: str
    ended_at: str | None
    missed: int = 0


def job_of(row: Row[Any]) -> Job:
    """Return the job of a row, which may have further columns. Raises UsageError if it cannot be read."""
    values = column_values(row, schema.JobRow)
    return Job(**{name: values[name] for name in Job.__dataclass_fields__})
