"""Retunes in the store, each with its findings."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, func, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from tuner.db import schema
from tuner.db.encoding import json_text
from tuner.db.opening import Transaction
from tuner.db.rows import kernel_from, utc_text
from tuner.db.settings import LARGEST_ID, SETTINGS
from tuner.db.unreadable import UnreadableRows, is_finite
from tuner.errors import StoreError, UsageError
from tuner.kernels.spec import Signature
from tuner.records.retune import Finding, Retune
from tuner.records.retune_codec import finding_from_json, finding_to_json
from tuner.records.strict import JsonObject, whole_number

_STATUSES = ("running", "done", "interrupted", "failed")
_RESUMED = ("running", "interrupted")


class Retunes:
    """The retunes of one store. Made by `Store.retunes`.

    Args:
        read: Opens a transaction that sees one state.
        write: Opens a transaction that is committed at its end.
        clock: Returns the time of the database.
        unreadable: Is given the rows that cannot be read.
    """

    def __init__(
        self,
        read: Transaction,
        write: Transaction,
        clock: Callable[[Connection], datetime],
        unreadable: UnreadableRows,
    ) -> None:
        self._read, self._write, self._clock, self._unreadable = read, write, clock, unreadable

    def start(
        self, device: str, settings: Mapping[str, Any], planned: Sequence[int], environment: Mapping[str, str]
    ) -> int:
        """Start a retune on a device, and return its id.

        Args:
            device: Device id.
            planned: Ids of the answers to be measured again, in order.
        """
        values = {"device": device, "settings": dict(settings), "planned": list(planned)}
        values |= {"environment": dict(environment), "status": "running"}
        with self._write() as connection:
            row = insert(schema.RetuneRow).values(**values, started_at=utc_text(self._clock(connection)))
            return int(connection.execute(row.returning(schema.RetuneRow.id)).scalar_one())

    def unfinished(self, device: str, settings: Mapping[str, Any], host: str = "") -> Retune | None:
        """Return the newest retune on a device with these settings if it did not end, else None.

        By the clock of the database, one that started longer ago than `StoreSettings.resumed_h` is left alone, and so
        is a running one of another host whose last finding is newer than `StoreSettings.abandoned_min`.

        Args:
            host: Name of this host, as retunes have it in their environment; empty if it does not matter.
        """
        row, stored = schema.RetuneRow, json.loads(json_text(settings))
        with self._read() as connection:
            now = self._clock(connection)
            query = select(row).where(row.device == device, row.started_at >= _before(now, hours=SETTINGS.resumed_h))
            rows: Sequence[Row[Any]] = connection.execute(query.order_by(row.id.desc())).all()
            known = self._unreadable.read("retunes", rows, lambda row: _retune_from(row, ()))
            newest = next((retune for retune in known if retune.settings == stored), None)
            if newest is None or newest.status not in _RESUMED:
                return None
            (found,) = self._of_rows(connection, [row for row in rows if row.id == newest.id])
            last = connection.scalar(select(func.max(schema.FindingRow.created_at)).filter_by(retune_id=newest.id))
            active = max(newest.started_at, last if isinstance(last, str) else "")
        goes_on = newest.status == "running" and active >= _before(now, minutes=SETTINGS.abandoned_min)
        return None if goes_on and host and newest.environment.get("host", host) != host else found

    def add(self, retune: int, finding: Finding) -> bool:
        """Write a finding; return False if the retune has one of this answer already, which stays."""
        with self._write() as connection:
            return add_finding(connection, retune, finding, utc_text(self._clock(connection)))

    def resume(self, retune: int) -> None:
        """Note that an interrupted retune runs again."""
        with self._write() as connection:
            running = {"status": "running", "ended_at": None}
            connection.execute(update(schema.RetuneRow).filter_by(id=retune).values(running))

    def end(self, retune: int, status: str) -> None:
        """End a retune: `done`, `interrupted` or `failed`."""
        with self._write() as connection:
            ended = {"status": status, "ended_at": utc_text(self._clock(connection))}
            connection.execute(update(schema.RetuneRow).filter_by(id=retune).values(ended))

    def get(self, id: int) -> Retune | None:
        """Return the retune of that id, or None if there is none that can be read."""
        if not 0 < id <= LARGEST_ID:
            return None
        with self._read() as connection:
            rows = connection.execute(select(schema.RetuneRow).filter_by(id=id)).all()
            found = self._of_rows(connection, rows)
        return found[0] if found else None

    def newest(self, limit: int, device: str | None = None, before: int | None = None) -> list[Retune]:
        """Return up to `limit` retunes, of one device if it is given and with ids below `before`, newest first."""
        row, found = schema.RetuneRow, list[Retune]()
        query = select(row) if device is None else select(row).where(row.device == device)
        with self._read() as connection:
            while len(found) < limit:
                some = query if before is None else query.where(row.id < before)
                rows = connection.execute(some.order_by(row.id.desc()).limit(limit)).all()
                if not rows:
                    break
                before = rows[-1].id
                found += self._of_rows(connection, rows)
        return found[:limit]

    def of_problem(self, problem: str, device: str) -> list[tuple[int, Finding]]:
        """Return the findings about a problem (its text) on a device, each with the id of its retune, oldest first."""
        condition = (schema.FindingRow.problem == problem) & (schema.AnswerRow.device == device)
        with self._read() as connection:
            return self._findings(connection, condition)

    def _of_rows(self, connection: Connection, rows: Sequence[Row[Any]]) -> list[Retune]:
        """Return the retunes of rows of `retunes`, each with its findings, without those that cannot be read."""
        found: dict[int, list[Finding]] = {}
        for retune, finding in self._findings(connection, schema.FindingRow.retune_id.in_([row.id for row in rows])):
            found.setdefault(retune, []).append(finding)
        return self._unreadable.read("retunes", rows, lambda row: _retune_from(row, found.get(row.id, ())))

    def _findings(self, connection: Connection, condition: Any) -> list[tuple[int, Finding]]:
        """Return the findings that meet a condition, each with the id of its retune, in the order of their writing."""
        finding, answer, run, kernel = schema.FindingRow, schema.AnswerRow, schema.RunRow, schema.KernelRow
        query: Any = select(finding, run.kernel_id).outerjoin(answer, answer.id == finding.answer_id)
        query = query.outerjoin(run, run.id == answer.run_id).where(condition).order_by(finding.id)
        rows = connection.execute(query).all()
        ids = {row.kernel_id for row in rows if type(row.kernel_id) is int}
        kernels = connection.execute(select(kernel.id, kernel.op, kernel.signature).where(kernel.id.in_(ids)))
        signatures = dict(self._unreadable.read("kernels", kernels, lambda row: (row.id, kernel_from(row)[1])))
        return self._unreadable.read("findings", rows, lambda row: _finding_from(row, signatures))


def _before(now: datetime, **ago: float) -> str:
    return utc_text(now - timedelta(**ago))


def add_finding(connection: Connection, retune: int, finding: Finding, created_at: str) -> bool:
    """Write a finding; return False if the retune has one of this answer already."""
    values = {
        "retune_id": retune,
        "answer_id": finding.answer_id,
        "problem": finding.problem.text,
        "cause": str(finding.cause),
        "action": str(finding.action),
        "new_answer_id": finding.new_answer_id,
        "document": finding_to_json(finding),
        "created_at": created_at,
    }
    made = postgresql if connection.dialect.name == "postgresql" else sqlite
    put = made.insert(schema.FindingRow).values(values)
    unless_there = put.on_conflict_do_nothing(index_elements=["retune_id", "answer_id"])
    return connection.execute(unless_there.returning(schema.FindingRow.id)).first() is not None


def found_already(retune: int, answer: int) -> StoreError:
    """Return the error of an answer that rests on a second finding of a retune about one answer."""
    return StoreError(
        f"a retune has one finding of each answer, and retune {retune} has that of answer {answer}; "
        "another process went on with it"
    )


def _retune_from(row: Row[Any], findings: Iterable[Finding]) -> Retune:
    """Return the retune of a row of `retunes`. Raises UsageError if it cannot be read."""
    given = JsonObject(dict(row._mapping), "a retune")
    if (status := given.text("status")) not in _STATUSES:
        raise UsageError(f"the status of a retune is {', '.join(_STATUSES)}, not {status[:40]!r}")
    settings, environment = given.mapping("settings"), given.object("environment")
    if not is_finite(settings):
        raise UsageError(f"settings has finite numbers, not {str(settings)[:80]}")
    if not isinstance(row.planned, list):
        raise given.refusal("planned", "a list")
    return Retune(
        id=row.id,
        device=given.text("device"),
        settings=settings,
        planned=tuple(whole_number(answer, "planned") for answer in row.planned),
        environment={name: environment.any_text(name) for name in environment.data},
        status=status,
        started_at=given.text("started_at"),
        ended_at=given.optional("ended_at", given.text),
        findings=tuple(findings),
    )


def _finding_from(row: Row[Any], signatures: Mapping[int, Signature]) -> tuple[int, Finding]:
    """Return the retune's id and the finding of a row of `findings`. Raises UsageError if it cannot be read."""
    if row.kernel_id not in signatures:
        raise UsageError(f"row {row.kernel_id} of kernels is missing, or cannot be read")
    finding = finding_from_json(row.document, signatures[row.kernel_id])
    columns = {
        "problem": finding.problem.text,
        "cause": str(finding.cause),
        "action": str(finding.action),
        "answer_id": finding.answer_id,
        "new_answer_id": finding.new_answer_id,
    }
    for name, stated in columns.items():
        if (has := getattr(row, name)) != stated:
            raise UsageError(f"the {name} of a finding is that of its document, {stated!r}, not {str(has)[:80]!r}")
    return JsonObject(dict(row._mapping), "a finding").whole("retune_id"), finding
