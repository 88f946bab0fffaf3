"""Views of the work of a fleet: jobs that workers hold, what ended by the hour, and jobs that failed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, func, select, true

from tuner.db import schema
from tuner.db.job import Job, job_of
from tuner.db.opening import OpenDatabase
from tuner.db.queries import is_running
from tuner.db.settings import LARGEST_ID
from tuner.db.unreadable import UnreadableRows
from tuner.records.strict import is_text

_HOUR = 13
"""Characters of a time to the hour: `2026-11-29T18`."""


@dataclass(frozen=True)
class HeldJob:
    """A job that a worker has."""

    job: Job
    left_s: float | None
    """Seconds until its lease ends, below 0 if it has ended; None if it cannot be read."""


@dataclass(frozen=True)
class FailedJob:
    """A job that failed after its last try."""

    job: Job
    newer: Job | None
    """The newest later job of the same problem and device."""


@dataclass(frozen=True)
class Hour:
    """Counts of what ended in one hour."""

    at: str
    """The hour, UTC: `2026-11-29T18`."""
    done: int = 0
    """Number of jobs that were done."""
    failed: int = 0
    """Number of jobs that failed."""
    configs: int = 0
    """Number of configs that the runs measured which ended in it."""


class Work:
    """The work of a store, which makes it.

    Args:
        unreadable: Is given the rows that cannot be read.
    """

    def __init__(self, opened: OpenDatabase, unreadable: UnreadableRows) -> None:
        self._read, self._now, self._unreadable = opened.read, opened.database.text_of_now, unreadable

    def held(self, limit: int) -> list[HeldJob]:
        """Return up to `limit` jobs that workers have, by worker."""
        job, now = schema.JobRow, self._now().label("now")
        running = select(job, now).where(job.status == "running").order_by(job.worker, job.id).limit(limit)
        with self._read() as connection:
            rows: Iterable[Row[Any]] = connection.execute(running)
            return self._unreadable.read("jobs", rows, _held)

    def seen_since(self, since: str) -> dict[str, Job]:
        """Return the last job of each worker that ended one at a time or later."""
        job = schema.JobRow
        query = select(job).where(job.ended_at >= since, job.worker.is_not(None)).order_by(job.ended_at)
        with self._read() as connection:
            rows: Iterable[Row[Any]] = connection.execute(query)
            return {found.worker: found for found in self._unreadable.read("jobs", rows, job_of) if found.worker}

    def by_card(self, since: str) -> dict[str, dict[str, int]]:
        """Return the number of jobs of each device by status; of those that ended, only since a time."""
        job = schema.JobRow
        query = select(job.device, job.status, func.count().label("number"))
        query = query.where(job.ended_at.is_(None) | (job.ended_at >= since)).group_by(job.device, job.status)
        found: dict[str, dict[str, int]] = {}
        with self._read() as connection:
            for row in connection.execute(query.order_by(job.device)):
                found.setdefault(str(row.device), {})[str(row.status)] = row.number
        return found

    def failed(self, limit: int, before: int | None = None) -> list[FailedJob]:
        """Return up to `limit` jobs that failed, those with ids below `before` if it is given, newest first."""
        job = schema.JobRow
        below = true() if before is None else job.id < before
        query = select(job).where(job.status == "failed", below).order_by(job.id.desc()).limit(limit)
        with self._read() as connection:
            failed = self._unreadable.read("jobs", connection.execute(query), job_of)
            texts = {each.problem for each in failed}
            later = select(job).where(job.problem.in_(texts), job.id > min((each.id for each in failed), default=0))
            newer = self._unreadable.read("jobs", connection.execute(later.order_by(job.id)), job_of)
        newest = {(each.problem, each.device): each for each in newer}
        return [FailedJob(each, _if_newer(newest.get((each.problem, each.device)), each)) for each in failed]

    def by_hour(self, since: str) -> list[Hour]:
        """Return what ended in each hour since a time, oldest first; hours without anything are left out."""
        job, run, trial = schema.JobRow, schema.RunRow, schema.TrialRow
        job_hour, run_hour = func.substr(job.ended_at, 1, _HOUR), func.substr(run.ended_at, 1, _HOUR)
        jobs = select(job_hour.label("hour"), job.status, func.count().label("number")).where(job.ended_at >= since)
        configs = select(run_hour.label("hour"), func.count(trial.id).label("number")).where(run.ended_at >= since)
        configs = configs.join(trial, trial.run_id == run.id).group_by(run_hour)
        found: dict[str, dict[str, int]] = {}
        with self._read() as connection:
            for row in connection.execute(jobs.group_by(job_hour, job.status)):
                if row.status in ("done", "failed") and is_text(row.hour):
                    found.setdefault(row.hour, {})[row.status] = row.number
            for row in connection.execute(configs):
                if is_text(row.hour):
                    found.setdefault(row.hour, {})["configs"] = row.number
        return [Hour(hour, **numbers) for hour, numbers in sorted(found.items())]

    def job(self, id: int) -> Job | None:
        """Return the job of that id, or None if there is none that can be read."""
        if not 0 < id <= LARGEST_ID:
            return None
        with self._read() as connection:
            rows = connection.execute(select(schema.JobRow).filter_by(id=id))
            found = self._unreadable.read("jobs", rows, job_of)
        return found[0] if found else None

    def running_of(self, problems: Collection[str]) -> Mapping[tuple[str, str], int]:
        """Return the newest run without an end of each of these problems (texts), by problem and device id."""
        run, problem, device = schema.RunRow, schema.ProblemRow, schema.DeviceRow
        query = select(run.id, problem.text, device.slug).join(problem, problem.id == run.problem_id)
        query = query.join(device, device.id == run.device_id)
        query = query.where(is_running(), problem.text.in_(problems)).order_by(run.id)
        with self._read() as connection:
            return {(row.text, row.slug): row.id for row in connection.execute(query)}

    def last_findings(self, retunes: Sequence[int]) -> dict[int, str]:
        """Return the time of the last finding of those of these retunes that have one."""
        finding = schema.FindingRow
        query = select(finding.retune_id, func.max(finding.created_at).label("at"))
        query = query.where(finding.retune_id.in_(retunes)).group_by(finding.retune_id)
        with self._read() as connection:
            return {row.retune_id: row.at for row in connection.execute(query) if is_text(row.at)}


def _held(row: Row[Any]) -> HeldJob:
    """Return the job of a row and the rest of its lease. Raises UsageError if it cannot be read."""
    job = job_of(row)
    try:
        left = datetime.fromisoformat(job.lease_until or "") - datetime.fromisoformat(row.now)
    except (ValueError, TypeError):
        return HeldJob(job, None)
    return HeldJob(job, left.total_seconds())


def _if_newer(found: Job | None, than: Job) -> Job | None:
    return found if found is not None and found.id > than.id else None
