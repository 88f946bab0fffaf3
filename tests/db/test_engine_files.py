"""Files of other systems in the store: by engine and key, the newest first, of limited number."""

from __future__ import annotations

import pytest
from sqlalchemy import insert
from stored import change, outside, rows

from tuner.db import schema
from tuner.db.database import Database
from tuner.db.settings import SETTINGS
from tuner.db.store import Store
from tuner.errors import UsageError


def test_a_file_is_found_by_engine_and_key_and_replaced(store: Store) -> None:
    files = store.engine_files
    files.put("triton", "a", '{"é": 1}')
    files.put("helion", "a", "2")
    files.put("triton", "a", "3")
    files.put("triton", "b", "4")
    assert (files.get("triton", "a"), files.get("helion", "a"), files.get("helion", "b")) == ("3", "2", None)
    assert files.newest("triton", 10) in (["3", "4"], ["4", "3"])
    assert len(files.newest("triton", 1)) == 1
    assert files.newest("inductor", 10) == []


def test_the_newest_are_first(store: Store, database: Database) -> None:
    for key in ("a", "b", "c"):
        store.engine_files.put("helion", key, key)
    change(database, "UPDATE engine_files SET written_at = '2026-01-01T00:00:00+00:00' WHERE key = 'b'")
    assert store.engine_files.newest("helion", 2) == ["c", "a"]


def test_the_oldest_go_if_there_are_too_many(store: Store, database: Database) -> None:
    many = [
        {"engine": "triton", "key": f"number {n}", "content": "", "written_at": f"2026-01-01T00:{n:06}"}
        for n in range(SETTINGS.engine_files)
    ]
    with outside(database).begin() as connection:
        connection.execute(insert(schema.EngineFileRow), many)
    store.engine_files.put("helion", "new", "x")
    assert store.engine_files.get("triton", "number 0") is None
    assert rows(database, "SELECT COUNT(*) FROM engine_files") == [(SETTINGS.engine_files,)]
    assert store.engine_files.get("helion", "new") == "x"


@pytest.mark.parametrize("content", ["x" * (SETTINGS.engine_file_characters + 1), "\udcff"])
def test_what_no_database_takes_is_refused(store: Store, content: str) -> None:
    with pytest.raises(UsageError, match="a file of triton is valid text of up to 1,000,000 characters, and k has"):
        store.engine_files.put("triton", "k", content)
