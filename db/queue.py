"""The queue of problems to be tuned: each is asked for once, taken by one worker at a time, and done or failed.

A worker holds a job by a lease, which it renews while it searches. When it dies the lease lapses, and the next worker
takes the job. Leases are told by the clock of the database, since those of hosts differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, exists, func, insert, or_, select, update

from tuner.db import schema
from tuner.db.rows import utc_text
from tuner.kernels.spec import Problem

MOST_TRIES = 3
"""A job that failed, or whose worker died, so many times is not tried again."""
_UNFINISHED = ("pending", "running")

Transaction = Callable[[], AbstractContextManager[Connection]]


@dataclass(frozen=True)
class Job:
    """A problem that somebody asked to have tuned, as `schema.Job` describes it."""

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


@dataclass(frozen=True)
class Able:
    """What a worker can tune: ops on a device; of them only these problems, if any are told."""

    device: str
    ops: frozenset[str]
    problems: frozenset[str] | None = None

    def of(self, table: type[schema.JobRow] | type[schema.RequestRow]) -> ColumnElement[bool]:
        """The rows that are for it."""
        conditions = [table.device == self.device, table.op.in_(self.ops)]
        return and_(*conditions, *([] if self.problems is None else [table.problem.in_(self.problems)]))


class Queue:
    """The jobs of a store, which makes it.

    Args:
        read: opens a transaction that sees one state.
        write: opens one that all others of its kind wait for, so that what is seen in it is not taken by others.
        clock: tells the time of the database.
    """

    def __init__(self, read: Transaction, write: Transaction, clock: Callable[[Connection], datetime]) -> None:
        self._read, self._write, self._clock = read, write, clock

    def ask_for(self, problem: Problem, device: str, priority: int = 0) -> tuple[Job, bool]:
        """The job that will tune a problem on a device, and whether it is new.

        One that is not finished is not doubled; it becomes as urgent as the more urgent of both.
        """
        with self._write() as connection:
            same = (schema.JobRow.problem == problem.text) & (schema.JobRow.device == device)
            number = connection.scalar(select(schema.JobRow.id).where(same, schema.JobRow.status.in_(_UNFINISHED)))
            if number is None:
                number = _pending(connection, problem.op, problem.text, device, priority, self._clock(connection))
                return _job(connection, number), True
            more = update(schema.JobRow).where(schema.JobRow.id == number, schema.JobRow.priority < priority)
            connection.execute(more.values(priority=priority))
            return _job(connection, number), False

    def jobs(self, limit: int) -> list[Job]:
        """What is not finished, as it will be taken, what runs first; then what is, the newest first."""
        running = schema.JobRow.status == "running"
        unfinished = select(schema.JobRow).where(schema.JobRow.status.in_(_UNFINISHED))
        finished = select(schema.JobRow).where(schema.JobRow.status.not_in(_UNFINISHED))
        parts = unfinished.order_by(running.desc(), *_urgency()), finished.order_by(schema.JobRow.id.desc())
        with self._read() as connection:
            return [Job(**row._mapping) for part in parts for row in connection.execute(part.limit(limit))]

    def waits(self, able: Sequence[Able], *, missed: bool = False) -> bool:
        """Whether there may be something to claim."""
        with self._read() as connection:
            now = utc_text(self._clock(connection))
            queries = [_free(able, now), *([_missed(able)] if missed else [])]
            return any(connection.execute(query.limit(1)).first() is not None for query in queries)

    def claim(self, worker: str, able: Sequence[Able], lease_s: float, *, missed: bool = False) -> Job | None:
        """Takes a job for so many seconds: the one of the highest priority, of these the most missed.

        One that was tried in vain comes after its equals.

        Args:
            worker: a name that no other has.
            missed: whether to take, where nobody asked for anything, what was most often looked up in vain.
        """
        with self._write() as connection:
            now = self._clock(connection)
            _give_up_on_the_lost(connection, now)
            number = connection.scalar(_free(able, utc_text(now)).limit(1))
            if number is None and missed and (asked := connection.execute(_missed(able).limit(1)).first()):
                number = _pending(connection, asked.op, asked.problem, asked.device, 0, now)
            if number is None:
                return None
            until = utc_text(now + timedelta(seconds=lease_s))
            taken = {"status": "running", "worker": worker, "lease_until": until, "tries": schema.JobRow.tries + 1}
            connection.execute(update(schema.JobRow).filter_by(id=number).values(taken))
            return _job(connection, number)

    def renew(self, job: Job, lease_s: float) -> bool:
        """Keeps a job for so many seconds from now; False: it is no longer the worker's."""
        with self._write() as connection:
            until = self._clock(connection) + timedelta(seconds=lease_s)
            return _change(connection, job, lease_until=utc_text(until))

    def done(self, job: Job, run_id: int) -> bool:
        """The run's answer serves; False: it was no longer the worker's."""
        with self._write() as connection:
            ended = utc_text(self._clock(connection))
            return _change(connection, job, status="done", error=None, run_id=run_id, ended_at=ended)

    def failed(self, job: Job, why: str) -> bool:
        """A try came to nothing: others may try again, or it was the last; False: it was no longer the worker's."""
        with self._write() as connection:
            if job.tries < MOST_TRIES:
                return _change(connection, job, status="pending", error=why)
            return _change(connection, job, status="failed", error=why, ended_at=utc_text(self._clock(connection)))

    def hand_back(self, job: Job) -> bool:
        """The worker was told to end, which is no try; False: the job was no longer its."""
        with self._write() as connection:
            return _change(connection, job, status="pending", tries=job.tries - 1)


def _free(able: Sequence[Able], now: str) -> Any:
    """Ids of what may be taken, the most urgent first."""
    lapsed = and_(schema.JobRow.status == "running", schema.JobRow.lease_until < now)
    may_be_tuned = or_(*(each.of(schema.JobRow) for each in able))
    free = select(schema.JobRow.id).where(or_(schema.JobRow.status == "pending", lapsed), may_be_tuned)
    return free.order_by(*_urgency())


def _urgency() -> tuple[Any, ...]:
    job, request = schema.JobRow, schema.RequestRow
    missed = select(request.count).where(request.problem == job.problem, request.device == job.device).scalar_subquery()
    return job.priority.desc(), job.tries, func.coalesce(missed, 0).desc(), job.id


def _missed(able: Sequence[Able]) -> Any:
    """What was looked up in vain and is no job, the most frequent first.

    Since the last miss it was not done; and if it failed, that is final until somebody asks for it.
    """
    job, request = schema.JobRow, schema.RequestRow
    settled = exists().where(
        job.problem == request.problem,
        job.device == request.device,
        or_(job.status != "done", job.ended_at >= request.last_at),
    )
    may_be_tuned = or_(*(each.of(request) for each in able))
    return select(request).where(may_be_tuned, ~settled).order_by(request.count.desc(), request.id)


def _give_up_on_the_lost(connection: Connection, now: datetime) -> None:
    """Jobs whose workers died too often are failed."""
    job = schema.JobRow
    lost = select(job).where(job.status == "running", job.lease_until < utc_text(now), job.tries >= MOST_TRIES)
    for row in connection.execute(lost).all():
        why = f"tried {row.tries} times, and {row.worker} ended without a word the last time"
        _change(connection, Job(**row._mapping), status="failed", error=why, ended_at=utc_text(now))


def _pending(connection: Connection, op: str, problem: str, device: str, priority: int, now: datetime) -> int:
    asked = {"op": op, "problem": problem, "device": device, "priority": priority}
    values = {**asked, "status": "pending", "tries": 0, "created_at": utc_text(now)}
    return int(connection.execute(insert(schema.JobRow).values(values).returning(schema.JobRow.id)).scalar_one())


def _change(connection: Connection, job: Job, **values: Any) -> bool:
    """Changes a job that its worker still has; False: it has not."""
    held = update(schema.JobRow).filter_by(id=job.id, worker=job.worker, status="running")
    return connection.execute(held.values(values)).rowcount == 1


def _job(connection: Connection, number: int) -> Job:
    return Job(**connection.execute(select(schema.JobRow).where(schema.JobRow.id == number)).one()._mapping)
