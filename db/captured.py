"""Captured calls in the store: one for each problem and device, with the number of times that it was captured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, Row, delete, func, select, update

from tuner.captured import document
from tuner.captured.call import CapturedCall, Examined
from tuner.captured.problem import problem_of_call
from tuner.db import schema
from tuner.db.encoding import json_text
from tuner.db.opening import Transaction
from tuner.db.rows import utc_now
from tuner.db.settings import SETTINGS
from tuner.db.unreadable import UnreadableRows
from tuner.db.writes import device_id, insert_missing
from tuner.errors import UnknownName, UsageError
from tuner.records import Device
from tuner.records.strict import JsonObject

_LONGEST_PROBLEM = 2000
"""Largest size of a problem's canonical text, in bytes, which an index of PostgreSQL can hold."""


@dataclass(frozen=True)
class StoredCall:
    """A captured call in a store."""

    id: int
    call: CapturedCall
    device: str
    """Device id."""
    problem: str
    """Canonical text."""
    count: int
    """Number of times that it was captured."""
    first_at: str
    """UTC, ISO 8601."""
    last_at: str


class CapturedCalls:
    """The captured calls of one store. Made by `Store.captured`."""

    def __init__(self, read: Transaction, write: Transaction, unreadable: UnreadableRows) -> None:
        self._read, self._write, self._unreadable = read, write, unreadable

    def add(self, call: CapturedCall, device: Device) -> bool:
        """Store a call, or count it if one of its problem and device is stored.

        A stored call is replaced if the function, its configs or its parameters have changed since, and kept otherwise,
        with its examination.

        Returns:
            Whether it is stored; False if there are as many calls as the store takes.

        Raises:
            UsageError: Its document or its problem is too large, or could not be read again.
        """
        problem, given = problem_of_call(call), document.to_json(call)
        document.from_json(given)
        if (length := len(problem.text.encode())) > _LONGEST_PROBLEM:
            raise UsageError(
                f"the texts in the key of a captured call have up to {_LONGEST_PROBLEM:,} bytes together, "
                f"not {length:,}; shorten them"
            )
        if (size := len(json_text(given))) > document.LARGEST_DOCUMENT:
            raise UsageError(
                f"a captured call has up to {document.LARGEST_DOCUMENT:,} bytes, not {size:,}; "
                "capture it with TUNER_CAPTURE_VALUES=0"
            )
        row = schema.CapturedRow
        with self._write() as connection:
            now = utc_now()
            unique = {"problem": problem.text, "device_id": device_id(connection, device)}
            values = {"op": call.op, "call": given, "count": 1, "first_at": now, "last_at": now}
            while not self._counted(connection, unique, call, given, now):
                if (connection.scalar(select(func.count()).select_from(row)) or 0) >= SETTINGS.captured_calls:
                    return False
                if insert_missing(connection, row, **unique, **values) is not None:
                    break  # else another writer was first
            return True

    def _counted(
        self, connection: Connection, unique: Mapping[str, Any], call: CapturedCall, given: Mapping[str, Any], now: str
    ) -> bool:
        """Count a call if one of its problem and device is stored, and return whether one is."""
        row = schema.CapturedRow
        known = select(row.id, row.call).filter_by(**unique).with_for_update()
        found = connection.execute(known).one_or_none()
        if found is None:
            return False
        changed: dict[str, Any] = {"count": row.count + 1, "last_at": now}
        before = self._unreadable.read("captured", [found], lambda row: document.from_json(row.call))
        if not before or not _same_function(before[0], call):
            changed["call"] = given
        connection.execute(update(row).filter_by(id=found.id).values(changed))
        return True

    def all(self, op: str | None = None, device: str | None = None, problem: str | None = None) -> list[StoredCall]:
        """Return the captured calls, oldest first, of one op, device id and text of a problem if these are given."""
        query = select(schema.CapturedRow, schema.DeviceRow.slug).outerjoin(schema.DeviceRow)
        if op is not None:
            query = query.where(schema.CapturedRow.op == op)
        if device is not None:
            query = query.where(schema.DeviceRow.slug == device)
        if problem is not None:
            query = query.where(schema.CapturedRow.problem == problem)
        with self._read() as connection:
            rows: Iterable[Row[Any]] = connection.execute(query.order_by(schema.CapturedRow.id))
            return self._unreadable.read("captured", rows, _stored)

    def examined(self, id: int, examined: Examined) -> None:
        """Write the result of an examination into a stored call.

        Raises:
            UnknownName: There is no such call.
            UsageError: The call cannot be read, or was captured anew with other arguments.
        """
        row = schema.CapturedRow
        with self._write() as connection:
            given = connection.execute(select(row.call).where(row.id == id).with_for_update()).one_or_none()
            if given is None:
                raise UnknownName(f"there is no captured call {id}; it was removed meanwhile")
            changed = document.to_json(replace(document.from_json(given.call), examined=examined))
            document.from_json(changed)
            connection.execute(update(row).filter_by(id=id).values(call=changed))

    def drop(self, ids: Iterable[int]) -> int:
        """Remove the calls with these ids, and return the number of those that were stored."""
        wanted, removed = sorted(set(ids)), 0
        with self._write() as connection:
            for start in range(0, len(wanted), SETTINGS.prune_batch):
                some = schema.CapturedRow.id.in_(wanted[start : start + SETTINGS.prune_batch])
                in_order = select(schema.CapturedRow.id).where(some).order_by(schema.CapturedRow.id).with_for_update()
                these = schema.CapturedRow.id.in_(in_order)
                removed += connection.execute(delete(schema.CapturedRow).where(these)).rowcount
        return removed


def most_frequent_first(calls: Iterable[StoredCall]) -> list[StoredCall]:
    """Return calls in the order in which they are searched and listed."""
    return sorted(calls, key=lambda stored: (-stored.count, stored.id))


def _same_function(stored: CapturedCall, call: CapturedCall) -> bool:
    """Return whether two calls are of one function, with the same parameters and configs."""

    def identity(call: CapturedCall) -> tuple[object, ...]:
        return call.function, call.configs, [*call.arguments], [*call.key], call.reset, call.restored

    return identity(stored) == identity(call)


def _stored(row: Row[Any]) -> StoredCall:
    """Return the call of a row of `captured`. Raises UsageError if it cannot be read."""
    given = JsonObject(dict(row._mapping), "a captured call")
    call, problem = document.from_json(row.call), given.text("problem")
    if problem_of_call(call).text != problem:
        raise UsageError(f"a captured call's problem is that of its document, not {problem[:80]!r}")
    return StoredCall(
        row.id, call, given.text("slug"), problem, given.whole("count"), given.text("first_at"), given.text("last_at")
    )
