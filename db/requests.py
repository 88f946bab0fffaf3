"""Requests: missed queries with their counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, func, select, update

from tuner.db.rows import utc_now
from tuner.db.schema import RequestRow
from tuner.db.settings import SETTINGS
from tuner.db.writes import insert_row
from tuner.kernels.spec import Problem


def page(connection: Connection, limit: int, after: int = 0) -> list[dict[str, Any]]:
    """Return the rows after the one of id `after`, most frequent first."""
    query = select(RequestRow).order_by(RequestRow.count.desc(), RequestRow.id).limit(limit)
    if after:
        count = connection.scalar(select(RequestRow.count).where(RequestRow.id == after)) or 0
        query = query.where((RequestRow.count < count) | ((RequestRow.count == count) & (RequestRow.id > after)))
    return [dict(row._mapping) for row in connection.execute(query)]


def of_problem(connection: Connection, problem: Problem) -> list[dict[str, Any]]:
    """Return the rows of one problem, by device."""
    query = select(RequestRow).where(RequestRow.problem == problem.text).order_by(RequestRow.device)
    return [dict(row._mapping) for row in connection.execute(query)]


def add_counts(connection: Connection, missed: Mapping[tuple[str, str, str], int]) -> None:
    """Add to the counts, by op, problem text and device.

    At most `StoreSettings.counted_requests` problems are counted; further ones are ignored.
    """
    now = utc_now()
    room = SETTINGS.counted_requests - (connection.scalar(select(func.count()).select_from(RequestRow)) or 0)
    for (op, problem, device), count in missed.items():
        known = update(RequestRow).where(RequestRow.problem == problem, RequestRow.device == device)
        if connection.execute(known.values(count=RequestRow.count + count, last_at=now)).rowcount:
            continue
        if room > 0:
            new = {"op": op, "problem": problem, "device": device, "count": count}
            insert_row(connection, RequestRow, **new, first_at=now, last_at=now)
            room -= 1
