"""Pins: answers that serve their problems until they are unpinned. They belong to one store and are never exported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, delete, select
from sqlalchemy.dialects import postgresql, sqlite

from tuner.db import schema
from tuner.db.opening import Transaction
from tuner.db.queries import in_service
from tuner.db.rows import utc_now
from tuner.db.unreadable import UnreadableRows
from tuner.errors import UnknownName
from tuner.kernels.spec import Problem
from tuner.records import FORGOTTEN
from tuner.records.strict import JsonObject


@dataclass(frozen=True)
class Pin:
    """A pinned answer. No search, retune or import stores another for its problem and device."""

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
            query = select(answer.op, answer.problem, answer.device, answer.config)  # type: ignore[attr-defined]
            query = query.where(answer.id == answer_id, answer.kind != FORGOTTEN, in_service())
            found = connection.execute(query).one_or_none()
            if found is None:
                raise UnknownName(f"an answer in service is pinned, and there is none of id {answer_id}")
            pin = Pin(found.op, found.problem, found.device, answer_id, found.config, note, utc_now())
            key = {"problem": pin.problem, "device": pin.device}
            values = {"answer_id": answer_id, "note": note, "created_at": pin.created_at}
            made = postgresql if connection.dialect.name == "postgresql" else sqlite
            put = made.insert(row).values(key | values)
            connection.execute(put.on_conflict_do_update(index_elements=[*key], set_=values))
            return pin

    def remove(self, problem: Problem, device: str) -> bool:
        """Unpin the answer to a problem on a device; return whether one was pinned."""
        row = schema.PinRow
        with self._write() as connection:
            unpinned = delete(row).where(row.problem == problem.text, row.device == device)
            return connection.execute(unpinned).rowcount > 0

    def of(self, device: str | None = None) -> list[Pin]:
        """Return the pins, of one device if it is given, oldest first."""
        return self._found(schema.PinRow.device == device if device is not None else schema.PinRow.id.is_not(None))

    def of_problem(self, problem: Problem, device: str) -> Pin | None:
        """Return the pin of a problem on a device, or None if no answer is pinned."""
        row = schema.PinRow
        found = self._found((row.problem == problem.text) & (row.device == device))
        return found[0] if found else None

    def _found(self, condition: Any) -> list[Pin]:
        pin, answer = schema.PinRow, schema.AnswerRow
        query = select(pin, answer.op, answer.config)  # type: ignore[attr-defined]
        query = query.outerjoin(answer, answer.id == pin.answer_id).where(condition).order_by(pin.id)
        with self._read() as connection:
            return self._unreadable.read("pins", connection.execute(query), _pin_from)


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
    )
