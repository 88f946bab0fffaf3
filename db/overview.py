"""Counts and outlines of what a store has, each in one short query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, case, func, select

from tuner.db import schema
from tuner.db.opening import Transaction
from tuner.db.progress import Progress
from tuner.db.queries import is_running, runs_of, select_runs
from tuner.db.settings import SETTINGS
from tuner.db.unreadable import UnreadableRows
from tuner.errors import UsageError
from tuner.records import StoredRun
from tuner.records.progress import LiveRun
from tuner.records.retune import Action, Cause
from tuner.records.strict import JsonObject, is_text


@dataclass(frozen=True)
class UnfinishedRun:
    """A run that has no end yet."""

    run: StoredRun
    measured_at: str | None
    """Time of its last trial, UTC in ISO 8601; None if it has none."""
    live: LiveRun | None = None
    """Its state, if it wrote one."""

    @property
    def active_at(self) -> str:
        """Time at which it was last known to run."""
        return max(self.run.started_at, self.measured_at or "", "" if self.live is None else self.live.at)

    def is_silent(self, now: datetime) -> bool:
        """Return whether it wrote nothing for so long that it was probably killed.

        One that never wrote its state has begun just now, or an earlier version runs it; its trials decide.
        """
        if self.live is not None:
            return self.live.age_s > SETTINGS.silent_s
        try:
            return datetime.fromisoformat(self.active_at) < now - timedelta(minutes=SETTINGS.abandoned_min)
        except ValueError:
            return True


@dataclass(frozen=True)
class RetuneOutline:
    """A retune with the numbers of its findings; reading the findings themselves takes far longer."""

    id: int
    device: str
    status: str
    started_at: str
    ended_at: str | None
    planned: int
    """Number of answers to be measured again."""
    causes: Mapping[Cause, int]
    """Findings, counted by their cause; causes without one are left out."""
    actions: Mapping[Action, int]

    @property
    def measured(self) -> int:
        """Number of answers that were measured again; a broken config counts."""
        return sum(count for cause, count in self.causes.items() if cause is not Cause.NOT_MEASURED)

    @property
    def worse(self) -> int:
        """Number of answers that were found slower or broken, repaired ones too."""
        return sum(count for cause, count in self.causes.items() if cause.is_regression)

    @property
    def replaced(self) -> int:
        """Number of answers that were replaced."""
        return self.actions.get(Action.REPLACED, 0)


class Overview:
    """Counts and outlines of one store. Made by `Store.overview`.

    Args:
        read: Opens a transaction that sees one state.
        unreadable: Is given the rows that cannot be read.
        progress: States of the searches that run.
    """

    def __init__(self, read: Transaction, unreadable: UnreadableRows, progress: Progress) -> None:
        self._read, self._unreadable, self._progress = read, unreadable, progress

    def jobs(self) -> dict[str, int]:
        """Return the number of jobs of each status."""
        status = schema.JobRow.status
        with self._read() as connection:
            return {
                str(row.status): row.number
                for row in connection.execute(select(status, func.count().label("number")).group_by(status))
            }

    def missed_problems(self) -> int:
        """Return the number of problems whose lookups missed, on all devices."""
        with self._read() as connection:
            return connection.scalar(select(func.count()).select_from(schema.RequestRow)) or 0

    def unfinished_runs(self, limit: int) -> list[UnfinishedRun]:
        """Return up to `limit` runs without an end, the newest first."""
        run, trial = schema.RunRow, schema.TrialRow
        running = select(run.id).where(is_running()).order_by(run.id.desc()).limit(limit)
        with self._read() as connection:
            ids = connection.scalars(running).all()
            found = runs_of(connection, select_runs(select(run.id).where(run.id.in_(ids))), self._unreadable)
            last = select(trial.run_id, func.max(trial.ended_at).label("at")).where(trial.run_id.in_(ids))
            rows = connection.execute(last.group_by(trial.run_id))
            times = {row.run_id: row.at for row in rows if is_text(row.at)}
        live = self._progress.of(ids) if ids else {}
        return [UnfinishedRun(each, times.get(each.id), live.get(each.id)) for each in found]

    def retunes(self, limit: int, before: int | None = None, device: str | None = None) -> list[RetuneOutline]:
        """Return up to `limit` retunes, those with ids below `before` if it is given, newest first.

        Args:
            device: Device id; None: all.
        """
        row = schema.RetuneRow
        query: Any = select(row.id, row.device, row.status, row.started_at, row.ended_at)
        query = query.order_by(row.id.desc()).limit(limit)
        query = query if before is None else query.where(row.id < before)
        query = query if device is None else query.where(row.device == device)
        with self._read() as connection:
            query = query.add_columns(_length(row.planned, connection.dialect.name).label("planned"))
            rows = connection.execute(query).all()
            counts = _counts(connection, [each.id for each in rows])
        return self._unreadable.read("retunes", rows, lambda row: _outline_from(row, counts.get(row.id, ())))


def _length(column: Any, dialect: str) -> ColumnElement[int | None]:
    """Return the length of a list in JSON, which is not read for it; null if it is no list."""
    if dialect == "postgresql":
        is_list = func.json_typeof(column) == "array"
    else:
        is_list = case((func.json_valid(column) == 1, func.json_type(column) == "array"), else_=False)
    return case((is_list, func.json_array_length(column)), else_=None)


def _counts(connection: Connection, retunes: Sequence[int]) -> dict[int, list[Row[Any]]]:
    """Return the numbers of findings by cause and action, by retune."""
    finding, found = schema.FindingRow, dict[int, list[Row[Any]]]()
    columns = (finding.retune_id, finding.cause, finding.action)
    counted: Any = select(*columns, func.count().label("number"))
    query = counted.where(finding.retune_id.in_(retunes)).group_by(*columns)
    for row in connection.execute(query).all():
        found.setdefault(row.retune_id, []).append(row)
    return found


def _outline_from(row: Row[Any], counts: Sequence[Row[Any]]) -> RetuneOutline:
    """Return the outline of a row of `retunes`. Raises UsageError if it cannot be read."""
    given = JsonObject(dict(row._mapping), "a retune")
    if row.planned is None:
        raise UsageError("planned is a list of the ids of answers, and here it is none")
    causes, actions = dict[Cause, int](), dict[Action, int]()
    for each in counts:
        try:
            cause, action = Cause(each.cause), Action(each.action)
        except ValueError as error:
            raise UsageError(
                f"a finding has a known cause and action, not {each.cause!r} and {each.action!r}"
            ) from error
        causes[cause] = causes.get(cause, 0) + each.number
        actions[action] = actions.get(action, 0) + each.number
    return RetuneOutline(
        id=row.id,
        device=given.text("device"),
        status=given.text("status"),
        started_at=given.text("started_at"),
        ended_at=given.optional("ended_at", given.text),
        planned=row.planned,
        causes=causes,
        actions=actions,
    )
