"""PostgreSQL: a server, reached through psycopg 3."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

from sqlalchemy import URL, ColumnElement, Connection, Double, Engine, cast, create_engine, event, func, make_url
from sqlalchemy.exc import ArgumentError

from tuner.db.database import Database
from tuner.db.encoding import json_text
from tuner.db.settings import ConnectionSettings
from tuner.db.unreadable import json_value
from tuner.errors import StoreError, UsageError

_SCHEMES = ("postgresql", "postgres", "postgresql+psycopg")
_PASSWORD_FILE = "password_file"
_ORDER_LOCK = 0x74756E6572
"""Advisory lock of the transaction that has its turn: `tuner` in ASCII."""


@dataclass(frozen=True)
class PostgreSQL(Database):
    """A database of a server. Only `tuner db upgrade` changes its schema, since many hosts may use it.

    Beside libpq's own parameters the URL takes `password_file=PATH`, a file whose only line is the password, for
    secrets of containers. It is read when the database is opened.

    A connection keeps no state between transactions but prepared statements, and none of these through a connection
    pooler, so pgbouncer in transaction mode serves as well.
    """

    url: URL = field(repr=False)
    wait: ConnectionSettings = field(default=ConnectionSettings(), compare=False, repr=False)
    migrates_on_open = False

    @staticmethod
    def at(text: str) -> PostgreSQL:
        """Return the database of a URL: `postgresql://user@host/name`.

        Raises:
            UsageError: It is another URL.
        """
        try:
            url = make_url(text)
            if url.drivername not in _SCHEMES:
                raise ValueError("another database")
            url = url.set(drivername="postgresql+psycopg")
            url.get_dialect()().create_connect_args(url)  # refuses a port that is no number
        except (ArgumentError, ValueError):  # their messages may hold the password
            raise UsageError(
                "a database is the path of a file or postgresql://user@host/name, and this is another URL"
            ) from None
        return PostgreSQL(url)

    def __str__(self) -> str:
        query = {name: value for name, value in self.url.query.items() if name in ("host", "port")}
        shown = URL.create("postgresql", self.url.username, None, self.url.host, self.url.port, self.url.database)
        return shown.set(query=query).render_as_string()

    def exists(self) -> bool:
        return True

    def engine(self, *, writes: bool) -> Engine:
        connects_s = self.wait.writer_connects_s if writes else self.wait.reader_connects_s
        defaults = {"connect_timeout": connects_s, "application_name": "triton-tuner", **_gives_up(self.wait.silent_s)}
        try:
            engine = create_engine(
                self._with_password(),
                json_deserializer=json_value,
                json_serializer=json_text,
                pool_size=self.wait.connections,
                max_overflow=0,  # such connections are closed after each use, and many would be made each second
                pool_use_lifo=True,
                isolation_level="AUTOCOMMIT",  # transactions begin where we say, below, with their settings in one trip
                connect_args={name: value for name, value in defaults.items() if name not in self.url.query},
            )
        except ImportError as error:
            raise UsageError(f"PostgreSQL needs {error.name}; pip install 'triton-tuner[postgres]'") from error

        read = f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {_limit('lock_timeout', self.wait.reader_s)}"
        write = f"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; {_limit('lock_timeout', self.wait.writer_s)}"
        # The server ends the transaction of a host that is suspended or unreachable, for which others may wait.
        write += f"; {_limit('idle_in_transaction_session_timeout', self.wait.idle_s)}"
        begins = {"read": read, "write": write, "put": write}

        @event.listens_for(engine, "connect")
        def connected(connection: Any, _: Any) -> None:
            if _is_pooled(connection):
                connection.prepare_threshold = None
            else:  # for transactions of one statement
                connection.execute(_limit("lock_timeout", self.wait.writer_s, "SESSION"))
                connection.execute("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED")

        @event.listens_for(engine, "begin")
        def begin(connection: Connection) -> None:
            kind = connection.get_execution_options().get("transaction", "read")
            driver: Any = connection.connection.driver_connection
            if kind != "put" or driver.prepare_threshold is None:  # through a pooler, the session has no limits of ours
                connection.exec_driver_sql(begins[kind])

        return engine

    def _with_password(self) -> URL:
        file = self.url.query.get(_PASSWORD_FILE)
        if file is None:
            return self.url
        try:
            password = Path(str(file)).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise StoreError(f"the password of the database {self} cannot be read: {error}") from error
        return self.url.difference_update_query([_PASSWORD_FILE]).set(password=password)

    def wait_for_turn(self, connection: Connection) -> None:
        # Released after the commit is visible, so that ids are in the order in which they become visible.
        lock = f"SELECT pg_advisory_xact_lock({_ORDER_LOCK})"
        limits = (_limit("lock_timeout", self.wait.turn_s), _limit("lock_timeout", self.wait.writer_s))
        connection.exec_driver_sql(f"{limits[0]}; {lock}; {limits[1]}")

    def now(self, connection: Connection) -> datetime:
        now: datetime = connection.exec_driver_sql("SELECT clock_timestamp()").scalar_one()
        return now.astimezone(UTC)

    def text_of_now(self, later_s: ColumnElement[float] | None = None) -> ColumnElement[str]:
        moment: ColumnElement[Any] = func.timezone("UTC", func.statement_timestamp())
        if later_s is not None:
            moment += func.make_interval(0, 0, 0, 0, 0, 0, cast(later_s, Double))
        return func.to_char(moment, 'YYYY-MM-DD"T"HH24:MI:SS.MS"+00:00"')

    def size(self, connection: Connection) -> int:
        return int(connection.exec_driver_sql("SELECT pg_database_size(current_database())").scalar_one())

    def back_up(self, file: str) -> NoReturn:
        command = f"pg_dump --format=custom --file={file} '{self}'"
        raise UsageError(f"a PostgreSQL database is backed up by its own tools: {command}")


def _gives_up(silent_s: int) -> dict[str, int]:
    """Return libpq's parameters for a connection that fails once the other side was silent for some seconds.

    Otherwise a statement waits for a quarter of an hour or more if the network or the server's host is lost.
    """
    probes = {"keepalives_idle": silent_s // 3, "keepalives_interval": silent_s // 3, "keepalives_count": 2}
    return {**probes, "tcp_user_timeout": 1000 * silent_s}


def _is_pooled(connection: Any) -> bool:
    """Return whether a pooler such as pgbouncer is between, which may give each transaction another server process.

    It gives its clients a process id of its own, which is not that of the server's process.
    """
    (process,) = connection.execute("SELECT pg_backend_pid()").fetchone()
    return bool(process != connection.info.backend_pid)


def _limit(name: str, seconds: float, scope: str = "LOCAL") -> str:
    """Return the statement that sets a time limit, of the transaction or of the session."""
    return f"SET {scope} {name} = '{round(seconds * 1000)}ms'"
