"""SQLite alone: files and their names, locks, permissions, a full disk."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Timer
from time import monotonic
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, event
from stored import (
    FULL,
    HERE,
    PROBLEM,
    SCALE,
    answered,
    change,
    config,
    measured,
    python,
    rows,
    started,
)  # fmt: skip

from tuner.db.opening import OpenDatabase
from tuner.db.sqlite import SQLite
from tuner.db.store import Store, default_database
from tuner.errors import StoreError, UsageError


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    store = Store.open(path)
    yield store
    store.close()


class TestFiles:
    def test_folders_on_the_way_are_made(self, tmp_path: Path) -> None:
        Store.open(tmp_path / "a" / "b" / "tuner.db").close()
        assert (tmp_path / "a" / "b" / "tuner.db").is_file()

    @pytest.mark.parametrize(
        "name", ["a b.db", "\u00fc\u6838.db", "a#b.db", "a?b.db", "a%41.db", "a?mode=ro", ":memory:"]
    )
    def test_any_name_is_the_name_of_the_file(self, tmp_path: Path, name: str) -> None:
        store = Store.open(tmp_path / name)
        answered(store)
        store.close()
        assert [found.name for found in tmp_path.iterdir()] == [name]

    def test_tuner_db_names_the_file(self, monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
        monkeypatch.setenv("TUNER_DB", str(path))
        assert default_database() == SQLite(path)

    def test_without_it_the_file_is_in_the_data_folder(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("TUNER_DB", "")
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
        assert default_database() == SQLite(tmp_path / "triton-tuner" / "tuner.db")

    def test_a_missing_file_is_not_made_unless_asked(self, path: Path) -> None:
        with pytest.raises(StoreError) as refused:
            Store.open(path, create=False)
        assert str(refused.value) == f"there is no database at {path}; a search makes it, or name another with --db"
        assert refused.value.exit_code == 5
        assert not path.exists()

    @pytest.mark.parametrize("create", [True, False], ids=["to write", "to read"])
    def test_a_store_that_is_moved_away_stays_away_and_comes_back(
        self, store: Store, path: Path, tmp_path: Path, create: bool
    ) -> None:
        store.close()
        with closing(Store.open(path, create=create)) as moved:
            moved.close()
            path.rename(tmp_path / "away.db")
            with pytest.raises(StoreError, match="unable to open database file"):
                moved.devices()
            assert not path.exists()
            (tmp_path / "away.db").rename(path)
            assert moved.devices() == []

    def test_a_file_that_is_empty_while_it_is_restored_is_left_alone(self, store: Store, path: Path) -> None:
        """Copying a backup over the file empties it first."""
        store.close()
        content = path.read_bytes()
        path.write_bytes(b"")
        with pytest.raises(StoreError, match="no such table"):
            started(store)
        assert [file.name for file in path.parent.iterdir() if file.stat().st_size] == []
        path.write_bytes(content)
        started(store)

    def test_a_file_that_is_no_database_is_refused_and_left_alone(self, path: Path) -> None:
        path.write_bytes(b"M,N,K,latency\n" * 1000)
        with pytest.raises(StoreError) as refused:
            Store.open(path)
        assert str(refused.value) == f"the database {path} cannot be read: file is not a database"
        assert path.read_bytes() == b"M,N,K,latency\n" * 1000

    def test_a_damaged_database_is_refused(self, store: Store, path: Path) -> None:
        answered(store)
        store.close()
        path.write_bytes(path.read_bytes()[:4096] + b"\xff" * 200_000)
        with pytest.raises(StoreError) as refused:
            Store.open(path)
        assert str(refused.value) == f"the database {path} cannot be read: database disk image is malformed"

    def test_a_folder_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(StoreError) as refused:
            Store.open(tmp_path)
        assert str(refused.value) == f"the database {tmp_path} cannot be read: unable to open database file"

    def test_a_folder_that_is_a_file_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "notes").write_text("")
        path = tmp_path / "notes" / "tuner.db"
        with pytest.raises(StoreError) as refused:
            Store.open(path)
        assert str(refused.value) == f"the folder of the database {path} cannot be made: File exists"

    @pytest.mark.parametrize("create", [True, False])
    def test_a_name_that_is_too_long_is_refused(self, tmp_path: Path, create: bool) -> None:
        with pytest.raises(StoreError):
            Store.open(tmp_path / ("x" * 300), create=create)


def impatient_engine(path: Path) -> Engine:
    return create_engine(f"sqlite:///{path}", connect_args={"timeout": 0.05})


class TestLocks:
    """Only the wait of `Store.open` is ten seconds, so these hand the constructor an engine that waits less."""

    def test_a_database_locked_against_writers_says_so(self, store: Store, path: Path) -> None:
        run = started(store)
        impatient = Store(OpenDatabase(impatient_engine(path), SQLite(path)))
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            with pytest.raises(StoreError) as refused:
                impatient.add_trial(run, measured())
        impatient.close()
        assert str(refused.value) == f"the database {path} cannot be written: database is locked"
        assert refused.value.exit_code == 5

    def test_a_database_locked_against_readers_says_so(self, path: Path) -> None:
        impatient = Store(OpenDatabase(impatient_engine(path), SQLite(path)))
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("CREATE TABLE store (uuid TEXT)")
            other.execute("BEGIN EXCLUSIVE")  # without a write-ahead log, readers are kept out too
            with pytest.raises(StoreError) as refused:
                impatient.devices()
        impatient.close()
        assert str(refused.value) == f"the database {path} cannot be read: database is locked"

    def test_a_writer_waits_for_another(self, store: Store, path: Path) -> None:
        run = started(store)
        with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
            other.execute("BEGIN EXCLUSIVE")
            release = Timer(0.5, other.execute, ["COMMIT"])
            release.start()
            since = monotonic()
            store.add_trial(run, measured())
            assert monotonic() - since > 0.3
            release.join()
        assert store.known(SCALE, PROBLEM, HERE) == [measured()]

    def test_opening_a_new_database_waits_for_the_process_that_makes_it(self, path: Path) -> None:
        """There is no write-ahead log yet, and SQLite does not wait for a lock to turn it on."""
        with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
            other.execute("BEGIN IMMEDIATE")
            release = Timer(0.5, other.execute, ["COMMIT"])
            release.start()
            since = monotonic()
            opened = Store.open(path)
            assert monotonic() - since > 0.3
            release.join()
        assert opened.devices() == []
        opened.close()

    def test_an_open_write_does_not_block_a_reader(self, store: Store, path: Path) -> None:
        number = answered(store)
        with closing(sqlite3.connect(path, isolation_level=None)) as writer:
            writer.execute("BEGIN EXCLUSIVE")
            writer.execute("UPDATE answers SET latency_us = 0")
            since = monotonic()
            newcomer = Store.open(path, create=False)
            assert [(stored.id, stored.answer.latency_us) for stored in newcomer.answers()] == [(number, 10.0)]
            assert monotonic() - since < 5
            newcomer.close()


UNPRIVILEGED = """
import json, os, sys
from tuner.db.store import Store
from tuner.errors import StoreError
path, elsewhere = sys.argv[1:]
Store.open(elsewhere).close()  # loads what is loaded late, which may be out of reach below
if os.geteuid() == 0:  # whom no permission stops
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
said = {}
try:
    Store.open(path)
except StoreError as error:
    said["writer"] = [type(error).__name__, str(error)]
reader = Store.open(path, create=False)
said["reader"] = [stored.id for stored in reader.answers()]
print(json.dumps(said))
"""


@pytest.fixture
def readable(tmp_path: Path) -> Iterator[Path]:
    """Yield a folder that all users may read, with a database of one answer; pytest's own folders are private."""
    with TemporaryDirectory(prefix="tuner-", dir="/tmp") as folder:
        store = Store.open(Path(folder) / "tuner.db")
        answered(store)
        store.close()
        Path(folder).chmod(0o755)
        yield Path(folder)
        Path(folder).chmod(0o700)


def unprivileged(path: Path, elsewhere: Path) -> Any:
    """Return the report of a process that has only the permissions that file and folder grant to all users."""
    printed, errors = python(UNPRIVILEGED, path, elsewhere).communicate()
    assert errors == ""
    return json.loads(printed)


class TestReadOnly:
    def test_a_database_in_a_read_only_folder_is_read(self, readable: Path, tmp_path: Path) -> None:
        path = (readable / "tuner.db").rename(readable / "a b#c%41\u00fc\u6838?mode=rw&x.db")
        readable.chmod(0o555)
        path.chmod(0o666)
        said = unprivileged(path, tmp_path / "other.db")
        assert said["reader"] == [1]
        assert said["writer"] == [
            "ReadOnly", f"the database {path} cannot be written: {readable} is read-only here"
        ]  # fmt: skip
        assert [*readable.iterdir()] == [path]

    def test_a_read_only_file_is_read(self, readable: Path, tmp_path: Path) -> None:
        readable.chmod(0o777)
        path = readable / "tuner.db"
        path.chmod(0o444)
        said = unprivileged(path, tmp_path / "other.db")
        assert said["reader"] == [1]
        assert said["writer"] == ["ReadOnly", f"the database {path} cannot be written: {path} is read-only here"]

    def test_what_is_only_in_the_log_is_not_seen_there(self, readable: Path, tmp_path: Path) -> None:
        """As the docstring of `SQLite` warns: so a copy of the file alone, without its log, is no backup."""
        store = Store.open(readable / "tuner.db")
        answered(store)
        with TemporaryDirectory(prefix="tuner-", dir="/tmp") as copied:
            shutil.copy(readable / "tuner.db", copied)
            Path(copied).chmod(0o555)
            assert unprivileged(Path(copied) / "tuner.db", tmp_path / "other.db")["reader"] == [1]
            Path(copied).chmod(0o700)
        store.close()


def test_a_full_disk_is_told_and_loses_nothing(path: Path) -> None:
    Store.upgrade(path)
    engine = SQLite(path).engine(writes=True)

    @event.listens_for(engine, "connect")
    def limit(connection: Any, _: Any) -> None:
        connection.execute("PRAGMA max_page_count = 50")  # 200 KiB, half of them in use

    store = Store(OpenDatabase(engine, SQLite(path)))
    run, written = started(store), 0

    def fill() -> None:
        nonlocal written
        while written < 1000:
            store.add_trial(run, replace(FULL, config=config(written)))
            written += 1

    with pytest.raises(StoreError) as refused:
        fill()
    store.close()
    assert str(refused.value) == f"the database {path} cannot be written: database or disk is full"
    assert refused.value.exit_code == 5
    assert written > 5
    assert rows(SQLite(path), "PRAGMA integrity_check") == [("ok",)]
    assert rows(SQLite(path), "SELECT count(*) FROM trials") == [(written,)]
    again = Store.open(path)
    again.add_trial(run, replace(FULL, config=config(2000)))
    again.close()


def test_what_infinite_numbers_were_written_as_before_is_read(path: Path) -> None:
    """0.1 wrote Python's own words, which SQLite keeps and PostgreSQL never took."""
    store = Store.open(path)
    answered(store)
    change(SQLite(path), """UPDATE runs SET settings = '{"known"\\: 0, "value"\\: [Infinity, -Infinity]}'""")
    (run,) = store.runs(1)
    store.close()
    assert run.settings["value"] == [inf, -inf]


class TestBackup:
    def test_it_is_one_file_that_opens_clean(self, path: Path, tmp_path: Path) -> None:
        store = Store.open(path)
        number = answered(store)
        copy = tmp_path / "copy.db"
        SQLite(path).back_up(str(copy))
        answered(store)  # not in the copy
        assert sorted(found.name for found in tmp_path.glob("copy*")) == ["copy.db"]
        assert rows(SQLite(copy), "PRAGMA integrity_check") == [("ok",)]
        assert rows(SQLite(copy), "PRAGMA journal_mode") == [("delete",)]
        opened = Store.open(copy)
        assert [stored.id for stored in opened.answers()] == [number]
        assert opened.snapshot.partition(":")[0] == store.snapshot.partition(":")[0]
        opened.close()
        store.close()

    def test_it_is_whole_while_another_writes(self, path: Path, tmp_path: Path) -> None:
        store = Store.open(path)
        run = started(store)

        def write() -> None:
            for block in range(200):
                store.add_trial(run, measured(block=block))

        with ThreadPoolExecutor(1) as threads:
            writing = threads.submit(write)
            for number in range(5):
                SQLite(path).back_up(str(tmp_path / f"{number}.copy"))
            writing.result()
        store.close()
        for copy in tmp_path.glob("*.copy"):
            assert rows(SQLite(copy), "PRAGMA integrity_check") == [("ok",)]

    def test_a_file_that_is_there_is_left_alone(self, path: Path, tmp_path: Path) -> None:
        Store.upgrade(path)
        (tmp_path / "notes").write_text("mine")
        with pytest.raises(UsageError) as refused:
            SQLite(path).back_up(str(tmp_path / "notes"))
        assert str(refused.value) == f"a backup is a new file, and {tmp_path / 'notes'} is there already"
        assert (tmp_path / "notes").read_text() == "mine"

    def test_nothing_is_left_of_one_that_fails(self, path: Path, tmp_path: Path) -> None:
        path.write_bytes(b"M,N,K\n" * 1000)
        with pytest.raises(StoreError, match=f"the database {path} cannot be copied to .*copy: file is not a database"):
            SQLite(path).back_up(str(tmp_path / "copy"))
        with pytest.raises(StoreError, match="unable to open database file"):
            SQLite(path).back_up(str(tmp_path / "nowhere" / "copy"))
        with pytest.raises(StoreError, match="there is no database at"):
            SQLite(tmp_path / "missing.db").back_up(str(tmp_path / "copy"))
        assert [found.name for found in tmp_path.iterdir()] == [path.name]
