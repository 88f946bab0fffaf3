"""SQLite: a file, with a write-ahead log beside it while it is in use."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, sleep
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, ColumnElement, Connection, Engine, String, cast, create_engine, event, func

from tuner.db.database import Database
from tuner.db.encoding import json_text
from tuner.db.revisions import OURS
from tuner.db.settings import ConnectionSettings
from tuner.db.unreadable import json_value, text_value
from tuner.errors import ReadOnly, StoreError, UsageError


@dataclass(frozen=True)
class SQLite(Database):
    """A file. Readers never wait for a writer, nor a writer for readers.

    A reader that may not write in the file's folder cannot use the write-ahead log. SQLite then reads the file alone:
    writes since the last checkpoint of the log are not seen, and a read may fail or mix old and new while a process
    with more rights writes. Such a folder should hold a finished copy, as `tuner db backup` makes it.
    """

    path: Path
    wait: ConnectionSettings = field(default=ConnectionSettings(), compare=False, repr=False)
    migrates_on_open = True

    def __str__(self) -> str:
        return str(self.path)

    def exists(self) -> bool:
        try:
            return self.path.exists()
        except OSError as error:
            raise StoreError(f"the database {self} cannot be read: {error.strerror}") from error

    def engine(self, *, writes: bool) -> Engine:
        if writes:
            self._make_writable()
        elif not self.exists():
            raise StoreError(f"there is no database at {self}; a search makes it, or name another with --db")
        engine = create_engine(self._url(writes), json_deserializer=json_value, json_serializer=json_text)
        may_be_new = writes

        @event.listens_for(engine, "connect")
        def configure(connection: Any, _: Any) -> None:
            nonlocal may_be_new
            connection.isolation_level = None  # transactions begin where we say, below
            connection.text_factory = text_value
            wait_s = self.wait.writer_s if writes else self.wait.reader_s
            with closing(connection.cursor()) as cursor:  # Ctrl-C would leave it open, and its lock
                cursor.execute(f"PRAGMA busy_timeout = {round(wait_s * 1000)}")
                tables = {name for (name,) in cursor.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
                if writes and (tables >= OURS or (may_be_new and not tables)):
                    _use_write_ahead_log(cursor, self.wait)
                may_be_new = False  # a file that is empty later on is about to be replaced
                cursor.execute("PRAGMA synchronous = NORMAL")
                cursor.execute("PRAGMA foreign_keys = ON")

        @event.listens_for(engine, "begin")
        def begin(connection: Connection) -> None:
            if connection.get_execution_options().get("transaction", "read") != "read":
                _begin_to_write(connection, self.wait)
            else:
                connection.exec_driver_sql("BEGIN")

        return engine

    def wait_for_turn(self, connection: Connection) -> None:
        pass  # each transaction that writes excludes all others from its start

    def now(self, connection: Connection) -> datetime:
        return datetime.now(UTC)  # of this host, where all its users are

    def text_of_now(self, later_s: ColumnElement[float] | None = None) -> ColumnElement[str]:
        later = [] if later_s is None else [cast(later_s, String).concat(" seconds")]
        return func.strftime("%Y-%m-%dT%H:%M:%f+00:00", "now", *later)

    def size(self, connection: Connection) -> int:
        files = (self.path, self.path.with_name(f"{self.path.name}-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    def back_up(self, file: str) -> None:
        if not self.exists():
            raise StoreError(f"there is no database at {self}")
        if os.path.lexists(file):
            raise UsageError(f"a backup is a new file, and {file} is there already")
        unfinished = f"{file}.unfinished"
        try:
            with closing(sqlite3.connect(self.path)) as here, closing(sqlite3.connect(unfinished)) as copy:
                here.backup(copy)
                copy.execute("PRAGMA journal_mode = DELETE")  # one file, that opens in a read-only folder too
            os.rename(unfinished, file)
        except sqlite3.Error as error:
            raise StoreError(f"the database {self} cannot be copied to {file}: {error}") from error
        except OSError as error:
            raise StoreError(f"the database {self} cannot be copied to {file}: {error.strerror}") from error
        finally:
            Path(unfinished).unlink(missing_ok=True)

    def _make_writable(self) -> None:
        if self == IN_MEMORY:
            return
        exists = self.exists()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"the folder of the database {self} cannot be made: {error.strerror}") from error
        if not exists:
            self._make_file()
        for needed in (self.path, self.path.parent):
            if exists and not os.access(needed, os.W_OK):
                raise ReadOnly(f"the database {self} cannot be written: {needed} is read-only here")

    def _make_file(self) -> None:
        """Make the file, which SQLite takes for an empty database. Connections only open it."""
        try:
            self.path.touch(exist_ok=True)
        except OSError as error:
            raise StoreError(f"the database {self} cannot be made: {error.strerror}") from error

    def _url(self, writes: bool) -> URL:
        """Return where the file is opened; a connection makes none, so that a store that was moved away stays away."""
        if self == IN_MEMORY:
            return URL.create("sqlite", database=str(self.path))
        how = {"mode": "rw"} if writes or self._readable() else {"immutable": "1"}
        return URL.create("sqlite", database=f"file:{quote(str(self.path))}", query=how | {"uri": "true"})

    def _readable(self) -> bool:
        """Return whether it can be read with its write-ahead log, or not at all."""
        try:
            with closing(sqlite3.connect(self.path, timeout=self.wait.reader_s)) as connection:
                connection.execute("SELECT 1 FROM sqlite_master")
        except sqlite3.DatabaseError as error:
            return error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
        return True


IN_MEMORY = SQLite(Path(":memory:"))
"""A database that is empty at first, and removed with the last connection to it."""


def _begin_to_write(connection: Connection, wait: ConnectionSettings) -> None:
    """Take the write lock. SQLite itself waits for it a moment at a time, since Ctrl-C does not end its wait."""
    cursor = connection.connection.cursor()
    until = monotonic() + wait.writer_s
    cursor.execute(f"PRAGMA busy_timeout = {round(wait.slice_s * 1000)}")
    try:
        while monotonic() < until:
            try:
                cursor.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                    break
        connection.exec_driver_sql("BEGIN IMMEDIATE")  # raises what the store reports
    finally:
        cursor.execute(f"PRAGMA busy_timeout = {round(wait.writer_s * 1000)}")
        cursor.close()


def _use_write_ahead_log(cursor: sqlite3.Cursor, wait: ConnectionSettings) -> None:
    """Turn on the write-ahead log, after a writer that is ahead.

    SQLite itself does not wait here, since a reader that wants the whole file might wait for another such reader.
    """
    since = monotonic()
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or monotonic() - since > wait.writer_s:
                raise
        sleep(wait.poll_s)
