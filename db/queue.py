"""The queue of jobs: problems to be tuned, each claimed by one worker at a time until it is done or failed.

A worker holds a job by a lease, which it renews while it searches. If the worker dies, the lease ends and the next
worker claims the job. Leases follow the clock of the database, since those of hosts differ.

A worker that comes back after its lease has ended cannot change the job any more once it is back in the queue. A hold
is known by the worker and its try: each claim is a new try, and only the holder itself takes its try back. What such a
worker measured is true all the same: its trials and its answer belong to its own run, and replace none of another run.

On PostgreSQL any number of workers claim at once: each skips the jobs that another is claiming.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Double,
    Executable,
    Row,
    and_,
    bindparam,
    case,
    exists,
    literal,
    literal_column,
    or_,
    select,
    update,
)

from tuner.db import schema
from tuner.db.database import Database
from tuner.db.job import Job as Job
from tuner.db.job import job_of
from tuner.db.opening import OpenDatabase
from tuner.db.settings import SETTINGS
from tuner.db.unreadable import UnreadableRows
from tuner.db.writes import insert_missing
from tuner.errors import UnknownName, UsageError
from tuner.kernels.spec import Problem

_UNFINISHED = ("pending", "running")
_PENDING: ColumnElement[str] = literal_column("'pending'")
_RUNNING: ColumnElement[str] = literal_column("'running'")
"""Constants in the text of a query: a prepared statement with a parameter in their place cannot use a partial index."""


@dataclass(frozen=True)
class JobFilter:
    """Jobs that a worker can do: these ops on a device, and of them only these problems, if given."""

    device: str
    ops: frozenset[str]
    problems: frozenset[str] | None = None

    def of(self, table: type[schema.JobRow] | type[schema.RequestRow]) -> ColumnElement[bool]:
        """Return the condition of rows that it includes."""
        conditions = [table.device == self.device, table.op.in_(self.ops)]
        return and_(*conditions, *([] if self.problems is None else [table.problem.in_(self.problems)]))


class Queue:
    """The jobs of a store, which makes it.

    Args:
        unreadable: Is given the jobs that cannot be read.
    """

    def __init__(self, opened: OpenDatabase, unreadable: UnreadableRows) -> None:
        self._read, self._write, self._put = opened.read, opened.write, opened.put
        self._database, self._unreadable = opened.database, unreadable
        self._now = opened.database.text_of_now

    def add(self, problem: Problem, device: str, priority: int = 0) -> tuple[Job, bool]:
        """Return the job to tune a problem on a device, and whether it is new.

        An unfinished job of this problem is returned instead, with the higher of both priorities.
        """
        job = schema.JobRow
        with self._write() as connection:
            unfinished = (job.problem == problem.text) & (job.device == device) & job.status.in_(_UNFINISHED)
            while True:
                higher = case((job.priority < priority, priority), else_=job.priority)
                raised = update(job).where(unfinished).values(priority=higher).returning(*job.__table__.columns)
                row = connection.execute(raised).one_or_none()
                if row is not None and (found := self._readable(row, connection.execute)) is not None:
                    return found, False
                number = _add_pending(connection, problem.op, problem.text, device, priority, self._now())
                if number is not None:  # else another was first
                    return job_of(connection.execute(select(job).where(job.id == number)).one()), True

    def retry(self, id: int) -> tuple[Job, bool]:
        """Add a job that failed once more, with all its tries; return the job, and whether it is new.

        An unfinished job of its problem is returned instead.

        Raises:
            UnknownName: There is no such job.
            UsageError: It has not failed.
        """
        job = schema.JobRow
        with self._write() as connection:
            failed = connection.execute(select(job).where(job.id == id)).one_or_none()
            if failed is None:
                raise UnknownName(f"there is no job {id}; tuner jobs lists them")
            if failed.status != "failed":
                raise UsageError(f"a job that failed is tried again, and job {id} is {failed.status}")
            about = failed.op, failed.problem, failed.device
            number = _add_pending(connection, *about, failed.priority, self._now())
            same = (job.problem == failed.problem) & (job.device == failed.device) & job.status.in_(_UNFINISHED)
            found = connection.execute(select(job).where(same if number is None else job.id == number)).one()
            return job_of(found), number is not None

    def jobs(self, limit: int) -> list[Job]:
        """Return unfinished jobs, then finished ones, up to `limit` of either.

        Running jobs come first, then pending ones in order of claiming; finished ones are newest first.
        """
        running = schema.JobRow.status == "running"
        unfinished = select(schema.JobRow).where(schema.JobRow.status.in_(_UNFINISHED))
        finished = select(schema.JobRow).where(schema.JobRow.status.not_in(_UNFINISHED))
        parts = unfinished.order_by(running.desc(), *_urgency()), finished.order_by(schema.JobRow.id.desc())
        with self._read() as connection:
            rows = [row for part in parts for row in connection.execute(part.limit(limit))]
            return self._unreadable.read("jobs", rows, job_of)

    def has_work(self, able: Sequence[JobFilter], *, missed: bool = False) -> bool:
        """Return whether there may be a job to claim."""
        with self._read() as connection:
            free = or_(schema.JobRow.status == _PENDING, _lapsed(self._now()))
            jobs = select(schema.JobRow.id).where(free, _any_of(able, schema.JobRow))
            queries = [jobs, *([_missed(able)] if missed else [])]
            return any(connection.execute(query.limit(1)).first() is not None for query in queries)

    def claim(self, worker: str, able: Sequence[JobFilter], lease_s: float, *, missed: bool = False) -> Job | None:
        """Claim the job of the highest priority, or return None if there is none.

        Of equal priority, jobs with fewer tries come first, then those missed more often.

        Args:
            worker: Name of the worker, unique.
            able: Jobs that the worker can do.
            lease_s: Length of the lease, in seconds.
            missed: Whether to add and claim the most often missed problem if no job is free.
        """
        take_back, take = _claiming(self._database, tuple(able))
        self._put(take_back)
        while True:
            rows = self._put(take, {"holder": worker, "lease_s": float(lease_s)})
            if rows and (job := self._readable(rows[0], self._put)) is not None:
                return job
            if not rows and not (missed and self._add_missed(able)):
                return None

    def _add_missed(self, able: Sequence[JobFilter]) -> bool:
        """Add a job of the problem that is missed most often; return whether there is one, here or of another."""
        with self._write() as connection:
            row = connection.execute(_missed(able).limit(1)).first()
            if row is not None:
                _add_pending(connection, row.op, row.problem, row.device, 0, self._now())
            return row is not None

    def _readable(self, row: Row[Any], execute: Callable[[Executable], object]) -> Job | None:
        """Return the job of a row; if it cannot be read, mark it as failed and return None."""
        try:
            return job_of(row)
        except UsageError as error:
            self._unreadable.add("jobs", row.id, error)
            ended = {
                "status": "failed",
                "error": f"it cannot be read: {error}",
                "ended_at": self._now(),
            }
            execute(update(schema.JobRow).filter_by(id=row.id).values(ended))
            return None

    def renew(self, job: Job, lease_s: float) -> bool:
        """Renew the lease from now on; return False if the worker has lost the job."""
        return self._change(job, lease_until=self._now(literal(float(lease_s))))

    def done(self, job: Job, run_id: int) -> bool:
        """End a job whose run gave an answer; return False if the worker has lost the job."""
        return self._change(job, status="done", error=None, run_id=run_id, ended_at=self._now())

    def failed(self, job: Job, why: str) -> bool:
        """Record a failed try, the last of which is final; return False if the worker has lost the job."""
        if job.tries < SETTINGS.job_tries:
            return self._change(job, status="pending", error=why)
        return self._change(job, status="failed", error=why, ended_at=self._now())

    def release(self, job: Job) -> bool:
        """Return a job to the queue without counting a try; return False if the worker has lost the job."""
        return self._change(job, status="pending", tries=job.tries - 1)

    def _change(self, job: Job, **values: Any) -> bool:
        """Change a job; return False if its worker has lost it."""
        held = update(schema.JobRow).filter_by(id=job.id, worker=job.worker, tries=job.tries, status="running")
        return len(self._put(held.values(values).returning(schema.JobRow.id))) == 1


@lru_cache(100)
def _claiming(database: Database, able: tuple[JobFilter, ...]) -> tuple[Executable, Executable]:
    """Return the statements that take back lost jobs and take the next one, for `holder` and `lease_s`.

    They are kept, since making them takes longer than the server needs for them.
    """
    job = schema.JobRow
    until = database.text_of_now(bindparam("lease_s", type_=Double()))
    taken = {"status": "running", "worker": bindparam("holder"), "lease_until": until, "tries": job.tries + 1}
    take = update(job).where(job.id == _most_urgent(able).scalar_subquery()).values(taken)
    return _take_back(database.text_of_now()), take.returning(job)


def _most_urgent(able: Sequence[JobFilter]) -> Any:
    """Return the query of the id of the pending job to be claimed next, which it locks."""
    pending = select(schema.JobRow.id).where(schema.JobRow.status == _PENDING, _any_of(able, schema.JobRow))
    return pending.order_by(*_urgency()).limit(1).with_for_update(skip_locked=True, of=schema.JobRow)


def _any_of(able: Sequence[JobFilter], table: type[schema.JobRow] | type[schema.RequestRow]) -> ColumnElement[bool]:
    return or_(*(each.of(table) for each in able))


def _lapsed(now: ColumnElement[str]) -> ColumnElement[bool]:
    """Return the condition of jobs whose lease has ended."""
    return and_(schema.JobRow.status == _RUNNING, schema.JobRow.lease_until < now)


def _urgency() -> tuple[Any, ...]:
    job = schema.JobRow
    return job.priority.desc(), job.tries, job.missed.desc(), job.id  # as in the index `ix_jobs_pending`


def _missed(able: Sequence[JobFilter]) -> Any:
    """Return the SQL query of missed problems that are not jobs yet, most frequent first.

    A job that was done before the last miss does not count. A failed one does, until it is added again.
    """
    job, request = schema.JobRow, schema.RequestRow
    settled = exists().where(
        job.problem == request.problem,
        job.device == request.device,
        or_(job.status != "done", job.ended_at >= request.last_at),
    )
    return select(request).where(_any_of(able, request), ~settled).order_by(request.count.desc(), request.id)


def _take_back(now: ColumnElement[str]) -> Executable:
    """Return the statement that returns the jobs whose lease has ended to the queue.

    It fails those whose workers died too often.
    """
    job = schema.JobRow
    lost = select(job.id).where(_lapsed(now)).with_for_update(skip_locked=True)
    is_last = job.tries >= SETTINGS.job_tries
    why = f"tried {SETTINGS.job_tries} times; the last worker, " + job.worker + ", ended without reporting a result"
    changed = {
        "status": case((is_last, "failed"), else_="pending"),
        "error": case((is_last, why), else_=job.error),
        "ended_at": case((is_last, now), else_=job.ended_at),
    }
    return update(job).where(job.id.in_(lost)).values(changed)


def _add_pending(
    connection: Connection, op: str, problem: str, device: str, priority: int, now: ColumnElement[str]
) -> int | None:
    """Write a pending job and return its id, or None if the problem has an unfinished one."""
    job = {"op": op, "problem": problem, "device": device, "priority": priority}
    request = schema.RequestRow
    counted = connection.scalar(select(request.count).filter_by(problem=problem, device=device))
    missed = counted if type(counted) is int else 0  # a count that cannot be read costs no job
    values = {**job, "status": "pending", "tries": 0, "created_at": now, "missed": missed}
    return insert_missing(connection, schema.JobRow, **values)
