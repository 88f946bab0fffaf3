"""Requests: missed queries with their counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, Row, bindparam, func, select, true, update

from tuner.db.rows import utc_now
from tuner.db.schema import JobRow, RequestRow
from tuner.db.settings import SETTINGS
from tuner.db.unreadable import UnreadableRows, column_values
from tuner.db.writes import INSERTS
from tuner.kernels.spec import Problem

_PENDING = (
    select(JobRow.id)
    .where(
        JobRow.status == "pending", JobRow.problem == bindparam("of_problem"), JobRow.device == bindparam("of_device")
    )
    .with_for_update(skip_locked=True)  # one that is being claimed needs no place in the queue
)
_COUNT = select(RequestRow.count).where(RequestRow.problem == JobRow.problem, RequestRow.device == JobRow.device)
_PUT_MISSED = update(JobRow).where(JobRow.id.in_(_PENDING)).values(missed=_COUNT.scalar_subquery())


def page(
    connection: Connection,
    limit: int,
    unreadable: UnreadableRows,
    after: int = 0,
    op: str | None = None,
    device: str | None = None,
) -> list[dict[str, Any]]:
    """Return the rows after the one of id `after`, of one op and device if they are given, most frequent first."""
    found = list[dict[str, Any]]()
    of_op = true() if op is None else RequestRow.op == op
    on_device = true() if device is None else RequestRow.device == device
    while len(found) < limit:
        query = select(RequestRow).where(of_op, on_device)
        query = query.order_by(RequestRow.count.desc(), RequestRow.id).limit(limit)
        if after:
            count = connection.scalar(select(RequestRow.count).where(RequestRow.id == after)) or 0
            query = query.where((RequestRow.count < count) | ((RequestRow.count == count) & (RequestRow.id > after)))
        rows = connection.execute(query).all()
        if not rows:
            break
        after = rows[-1].id
        found += _readable(rows, unreadable)
    return found[:limit]


def of_problem(connection: Connection, problem: Problem, unreadable: UnreadableRows) -> list[dict[str, Any]]:
    """Return the rows of one problem, by device."""
    query = select(RequestRow).where(RequestRow.problem == problem.text).order_by(RequestRow.device)
    return _readable(connection.execute(query), unreadable)


def _readable(rows: Iterable[Row[Any]], unreadable: UnreadableRows) -> list[dict[str, Any]]:
    return unreadable.read("requests", rows, lambda row: column_values(row, RequestRow))


def add_counts(connection: Connection, missed: Mapping[tuple[str, str, str], int]) -> None:
    """Add to the counts, by op, problem text and device, also to those of pending jobs.

    At most `StoreSettings.counted_requests` problems are counted; further ones are ignored.
    """
    now = utc_now()
    room = SETTINGS.counted_requests - (connection.scalar(select(func.count()).select_from(RequestRow)) or 0)
    new = INSERTS[connection.dialect.name](RequestRow)
    added = {"count": RequestRow.count + new.excluded.count, "last_at": new.excluded.last_at}
    new = new.on_conflict_do_update(index_elements=["problem", "device"], set_=added)
    for (op, problem, device), count in sorted(missed.items(), key=lambda item: item[0][1:]):
        known = update(RequestRow).where(RequestRow.problem == problem, RequestRow.device == device)
        if not connection.execute(known.values(count=RequestRow.count + count, last_at=now)).rowcount:
            if room <= 0:
                continue
            values = {"op": op, "problem": problem, "device": device, "count": count}
            connection.execute(new, values | {"first_at": now, "last_at": now})
            room -= 1
        connection.execute(_PUT_MISSED, {"of_problem": problem, "of_device": device})
