"""Pins: answers that serve their problems until they are unpinned. They belong to one store and are never exported."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, delete, select
from sqlalchemy.dialects import postgresql, sqlite

from tuner.db import schema
from tuner.db.opening import Transaction
from tuner.db.queries import in_service
from tuner.db.rows import utc_now
from tuner.db.unreadable import UnreadableRows
from tuner.errors import UnknownName
from tuner.kernels.spec import Problem
from tuner.records import FORGOTTEN, Provenance
from tuner.records.strict import JsonObject

Scope = tuple[str, str, bool]
"""Answers that a pin keeps from being stored: text of the problem, device id, and whether they are recorded.

An answer that was measured on a card does not hold back those of a recorded space, nor the other way round.
"""


def scope_of(problem: Problem, provenance: Provenance) -> Scope:
    """Return the scope to which an answer to a problem belongs."""
    return problem.text, provenance.device.id, provenance.recorded is not None


@dataclass(frozen=True)
class Pin:
    """A pinned answer. No search, retune or import stores another of its scope."""

    op: str
    problem: str
    """Canonical text."""
    device: str
    """Device id."""
    answer_id: int
    config: Mapping[str, Any]
    """Config of the answer."""
    note: str
    """Reason that was given with it; may be empty."""
    created_at: str
    """UTC, ISO 8601."""
    recorded: str | None = None
    """The recorded space that the answer was replayed from; None: measured on the device."""

    @property
    def scope(self) -> Scope:
        """The answers that it keeps from being stored."""
        return self.problem, self.device, self.recorded is not None

    @property
    def because(self) -> str:
        """The note, as it follows a sentence; empty without one."""
        return f" ({self.note})" if self.note else ""


class Pins:
    """The pins of one store. Made by `Store.pins`."""

    def __init__(self, read: Transaction, write: Transaction, unreadable: UnreadableRows) -> None:
        self._read, self._write, self._unreadable = read, write, unreadable

    def add(self, answer_id: int, note: str = "") -> Pin:
        """Pin an answer in place of another of its problem and device, if one is pinned.

        Raises:
            UnknownName: There is no such answer in service.
        """
        answer, row = schema.AnswerRow, schema.PinRow
        with self._write() as connection:
            query = select(answer.problem, answer.device)
            query = query.where(answer.id == answer_id, answer.kind != FORGOTTEN, in_service())
            found = connection.execute(query).one_or_none()
            if found is None:
                raise UnknownName(f"an answer in service is pinned, and there is none of id {answer_id}")
            key = {"problem": found.problem, "device": found.device}
            values = {"answer_id": answer_id, "note": note, "created_at": utc_now()}
            made = postgresql if connection.dialect.name == "postgresql" else sqlite
            put = made.insert(row).values(key | values)
            connection.execute(put.on_conflict_do_update(index_elements=[*key], set_=values))
            return self._found(connection, row.answer_id == answer_id)[0]

    def remove(self, problem: Problem, device: str) -> bool:
        """Unpin the answer to a problem on a device; return whether one was pinned."""
        row = schema.PinRow
        with self._write() as connection:
            unpinned = delete(row).where(row.problem == problem.text, row.device == device)
            return connection.execute(unpinned).rowcount > 0

    def of(self, device: str | None = None) -> list[Pin]:
        """Return the pins, of one device if it is given, oldest first."""
        row = schema.PinRow
        with self._read() as connection:
            return self._found(connection, row.device == device if device is not None else row.id.is_not(None))

    def of_problem(self, problem: Problem, device: str) -> Pin | None:
        """Return the pin of a problem on a device, or None if no answer is pinned."""
        row = schema.PinRow
        with self._read() as connection:
            found = self._found(connection, (row.problem == problem.text) & (row.device == device))
        return found[0] if found else None

    def holding(self, problem: Problem, provenance: Provenance) -> Pin | None:
        """Return the pin that keeps answers to a problem of this origin from being stored, or None."""
        pin = self.of_problem(problem, provenance.device.id)
        return pin if pin is not None and pin.scope == scope_of(problem, provenance) else None

    def _found(self, connection: Connection, condition: Any) -> list[Pin]:
        pin, answer, run = schema.PinRow, schema.AnswerRow, schema.RunRow
        query = select(pin, answer.op, answer.config, run.recorded)  # type: ignore[attr-defined]
        query = query.outerjoin(answer, answer.id == pin.answer_id).outerjoin(run, run.id == answer.run_id)
        rows = connection.execute(query.where(condition).order_by(pin.id))
        return self._unreadable.read("pins", rows, _pin_from)


def pinned_scopes(connection: Connection, problems: Collection[str]) -> dict[Scope, int]:
    """Return the scopes of the pins of problems (their texts), each with the id of the pinned answer."""
    pin, answer, run = schema.PinRow, schema.AnswerRow, schema.RunRow
    query = select(pin.problem, pin.device, pin.answer_id, run.recorded).where(pin.problem.in_(problems))
    query = query.outerjoin(answer, answer.id == pin.answer_id).outerjoin(run, run.id == answer.run_id)
    return {(row.problem, row.device, row.recorded is not None): row.answer_id for row in connection.execute(query)}


def is_pinned() -> Any:
    """Return the condition on answers that they are pinned."""
    return select(schema.PinRow.id).where(schema.PinRow.answer_id == schema.AnswerRow.id).exists()


def _pin_from(row: Row[Any]) -> Pin:
    """Return the pin of a row of `pins` and its answer. Raises UsageError if it cannot be read."""
    given = JsonObject(dict(row._mapping), "a pin")
    return Pin(
        op=given.text("op"),
        problem=given.text("problem"),
        device=given.text("device"),
        answer_id=given.whole("answer_id"),
        config=given.mapping("config"),
        note=given.any_text("note"),
        created_at=given.text("created_at"),
        recorded=given.optional("recorded", given.text),
    )
