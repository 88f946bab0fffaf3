"""Files with the tuning results of other systems, shared by all processes with this store.

A file belongs to an engine and has the key that the engine gives it. The key names all that the content depends on, so
equal keys have equally good contents, on any machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Row, delete, func, select, update

from tuner.db.opening import Transaction
from tuner.db.rows import utc_now
from tuner.db.schema import EngineFileRow
from tuner.db.settings import SETTINGS
from tuner.db.unreadable import UnreadableRows
from tuner.db.writes import INSERTS
from tuner.errors import UsageError
from tuner.records.strict import is_text


class EngineFiles:
    """The engines' files in one store. Made by `Store.engine_files`."""

    def __init__(self, read: Transaction, write: Transaction, unreadable: UnreadableRows) -> None:
        self._read, self._write, self._unreadable = read, write, unreadable

    def get(self, engine: str, key: str) -> str | None:
        """Return the content of a file, or None if there is none that can be read."""
        query = select(EngineFileRow.id, EngineFileRow.content).filter_by(engine=engine, key=key)
        with self._read() as connection:
            rows: Iterable[Row[Any]] = connection.execute(query)
            found = self._unreadable.read("engine_files", rows, _content)
        return found[0] if found else None

    def newest(self, engine: str, limit: int) -> list[str]:
        """Return the contents of an engine's files, the newest first, at most `limit`."""
        row = EngineFileRow
        query = select(row.id, row.content).filter_by(engine=engine).order_by(row.written_at.desc(), row.id.desc())
        with self._read() as connection:
            rows: Iterable[Row[Any]] = connection.execute(query.limit(limit))
            return self._unreadable.read("engine_files", rows, _content)

    def put(self, engine: str, key: str, content: str) -> None:
        """Write a file, replacing one with its key. The oldest files are removed if there are more than the limit.

        Raises:
            UsageError: It is too long, or is no valid text.
        """
        if len(content) > SETTINGS.engine_file_characters or not is_text(content):
            raise UsageError(
                f"a file of {engine} is valid text of up to {SETTINGS.engine_file_characters:,} characters, "
                f"and {key[:80]} has {len(content):,}"
            )
        row, values = EngineFileRow, {"content": content, "written_at": utc_now()}
        with self._write() as connection:
            if connection.execute(update(row).filter_by(engine=engine, key=key).values(values)).rowcount:
                return
            put = INSERTS[connection.dialect.name](row).values(engine=engine, key=key, **values)
            connection.execute(put.on_conflict_do_update(index_elements=["engine", "key"], set_=values))
            surplus = (connection.scalar(select(func.count()).select_from(row)) or 0) - SETTINGS.engine_files
            if surplus > 0:
                oldest = select(row.id).order_by(row.written_at, row.id).limit(surplus)
                oldest = oldest.with_for_update(skip_locked=True)
                connection.execute(delete(row).where(row.id.in_(oldest)))


def _content(row: Row[Any]) -> str:
    """Return the content of a row. Raises UsageError if it is no valid text."""
    if not isinstance(row.content, str) or not is_text(row.content):
        raise UsageError("the content of a file is a valid text")
    return row.content
