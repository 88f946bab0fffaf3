"""Counts of a database's content, and the removal of what no answer rests on."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, delete, func, select

from tuner.db import revisions, schema
from tuner.db.database import Database
from tuner.db.queries import in_service
from tuner.db.settings import SETTINGS
from tuner.db.unreadable import UnreadableRows, printable
from tuner.records import FORGOTTEN
from tuner.records.strict import JsonObject


@dataclass(frozen=True)
class Counts:
    """Counts of rows."""

    runs: int = 0
    trials: int = 0
    answers: int = 0


@dataclass(frozen=True)
class Info:
    """Description of a database."""

    database: str
    engine: str
    """Name and version: `sqlite 3.40.1`, `postgresql 15.14`."""
    schema: str | None
    """Revision; None if there are no tables."""
    bytes: int
    total: Counts
    devices: dict[str, Counts]
    """By `Device.id`, in order."""


@dataclass(frozen=True)
class Pruned:
    """Counts of rows that were removed, or would be."""

    runs: int
    """Runs whose trials and rounds were removed; the runs themselves stay."""
    trials: int
    rounds: int


def info(connection: Connection, database: Database) -> Info:
    """Describe a database of any schema."""
    revision = revisions.found(connection)
    dialect = connection.dialect
    version = ".".join(str(part) for part in dialect.server_version_info or ())
    devices = {} if revision is None else _devices(connection)
    return Info(
        database=str(database),
        engine=f"{dialect.name} {version}",
        schema=revision,
        bytes=database.size(connection),
        total=Counts(*(sum(column) for column in zip(*map(_numbers, devices.values()), strict=True))),
        devices=devices,
    )


def prune(connection: Connection, before: str, unreadable: UnreadableRows, *, dry_run: bool) -> Pruned:
    """Remove trials and rounds of runs whose last activity is older than `before` and that no answer rests on.

    An answer that serves rests on its run, and on the earlier runs that its run took trials over from. Runs and answers
    stay, and so does everything of a run that cannot be read.
    """
    trials, rounds = Counter[int](), Counter[int]()
    idle = _idle(connection, before, unreadable)
    for start in range(0, len(idle), SETTINGS.prune_batch):
        some = idle[start : start + SETTINGS.prune_batch]
        for table, counted in ((schema.TrialRow, trials), (schema.RoundRow, rounds)):
            of_these = table.run_id.in_(some)
            counts = select(table.run_id, func.count().label("found")).where(of_these).group_by(table.run_id)
            counted.update({row.run_id: row.found for row in connection.execute(counts)})
            if not dry_run:
                connection.execute(delete(table).where(of_these))
    return Pruned(len({*trials, *rounds}), trials.total(), rounds.total())


def _devices(connection: Connection) -> dict[str, Counts]:
    def counted(query: Any) -> dict[str, int]:
        return {row.slug: row.found for row in connection.execute(query.group_by(schema.DeviceRow.slug))}

    found = select(schema.DeviceRow.slug, func.count().label("found"))
    runs = found.join(schema.RunRow, schema.RunRow.device_id == schema.DeviceRow.id)
    by_run = counted(runs)
    by_trial = counted(runs.join(schema.TrialRow, schema.TrialRow.run_id == schema.RunRow.id))
    of_run = (schema.AnswerRow.run_id == schema.RunRow.id) & (schema.AnswerRow.kind != FORGOTTEN)
    by_answer = counted(runs.join(schema.AnswerRow, of_run))
    slugs = sorted(by_run, key=str)
    return {printable(str(slug)): Counts(by_run[slug], by_trial.get(slug, 0), by_answer.get(slug, 0)) for slug in slugs}


def _numbers(counts: Counts) -> tuple[int, int, int]:
    return counts.runs, counts.trials, counts.answers


def _idle(connection: Connection, before: str, unreadable: UnreadableRows) -> list[int]:
    """Return the runs that no answer rests on and that had no activity since."""
    last_trial = (
        select(func.max(schema.TrialRow.ended_at)).where(schema.TrialRow.run_id == schema.RunRow.id).scalar_subquery()
    )
    last_active = func.coalesce(schema.RunRow.ended_at, last_trial, schema.RunRow.started_at)
    query: Any = select(schema.RunRow, schema.KernelRow.source, last_active.label("last_active"))
    rows = connection.execute(query.join(schema.KernelRow, schema.RunRow.kernel_id == schema.KernelRow.id))
    runs = unreadable.read("runs", rows, _with_settings)
    serving = _serving(connection)
    built_on: dict[tuple[Any, ...], int] = {}
    """For each key, the newest run that serves and took over trials of earlier runs."""
    for run in runs:
        if run.id in serving and run.settings.get("known"):
            built_on[_key(run)] = max(run.id, built_on.get(_key(run), 0))
    return [
        run.id
        for run in runs
        if run.last_active < before and run.id not in serving and run.id > built_on.get(_key(run), 0)
    ]


def _with_settings(row: Row[Any]) -> Row[Any]:
    """Return the row of a run. Raises UsageError if the fields that are read here cannot be."""
    given = JsonObject(dict(row._mapping), "a run")
    given.mapping("settings"), given.text("last_active")
    return row


def _key(run: Any) -> tuple[Any, ...]:
    """Return the key of a run. Runs of one key take over each other's trials."""
    return run.source, run.problem_id, run.device_id, run.environment_id, run.policy, run.recorded


def _serving(connection: Connection) -> set[int]:
    """Return the runs whose answer serves: the newest answer of each key, and the answer that a rollback restores."""
    answer = schema.AnswerRow
    columns = (answer.id, answer.run_id, answer.about_id)
    of_run = (schema.RunRow.recorded, schema.RunRow.definition)
    key: tuple[Any, ...] = (answer.problem, answer.device, answer.source, answer.policy, answer.triton, *of_run)
    query = select(*columns, *key).join(schema.RunRow, answer.run_id == schema.RunRow.id)
    query = query.where(answer.kind != FORGOTTEN, in_service())
    rows = connection.execute(query.order_by(answer.id)).all()
    newest: dict[tuple[Any, ...], Any] = {tuple(row[len(columns) :]): row for row in rows}
    restored = {row.about_id for row in newest.values()}
    return {row.run_id for row in newest.values()} | {row.run_id for row in rows if row.id in restored}
