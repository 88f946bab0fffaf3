"""Opening a database: its transactions, the check of its schema, and the upgrade."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, Engine, Executable, Row, event, func, insert, select
from sqlalchemy.exc import DBAPIError

from tuner.db import revisions, schema
from tuner.db.database import Database
from tuner.db.location import database_at
from tuner.db.revisions import HEAD
from tuner.db.rows import utc_now
from tuner.errors import ReadOnly, StoreError

Transaction = Callable[[], AbstractContextManager[Connection]]
"""Opens a transaction: `read`, `write` or `write_in_order` of `OpenDatabase`."""


class OpenDatabase:
    """A database and the connections to it. Safe to use from several threads."""

    def __init__(self, engine: Engine, database: Database) -> None:
        self.engine, self.database = engine, database
        self._only_read: str | None = None
        """The reason why it is only read, if it is."""
        self._made: list[Any] = []
        """Connections of the driver that were made until it is open."""
        self._is_open = False
        event.listen(engine, "connect", self._keep, insert=True)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Yield a connection in a transaction that sees one state of the database."""
        with self.database.errors("read"), self._begun("read") as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Yield a connection in a transaction that writes.

        On PostgreSQL others write at the same time, and each statement sees what they have committed before it. What
        must hold for all of them is left to unique constraints and row locks. Rows that several transactions write are
        written in the order of their keys, and of shared rows kernels come first, then problems, devices and
        environments, so that no two transactions wait for each other.

        Raises:
            ReadOnly: A newer version made the schema.
        """
        if self._only_read is not None:
            raise ReadOnly(self._only_read)
        with self.database.errors("written"), self._begun("write") as connection:
            yield connection
            connection.commit()

    @contextmanager
    def write_in_order(self) -> Iterator[Connection]:
        """Yield a connection as `write` does, in a transaction that has its turn; see `take_turn`.

        Raises:
            ReadOnly: A newer version made the schema.
        """
        with self.write() as connection:
            self.take_turn(connection)
            yield connection

    def take_turn(self, connection: Connection) -> None:
        """Wait until no other transaction has its turn, which then belongs to this one until it is committed.

        Rows that are written in turn get their ids in the order of commits, so a reader that has seen an id has seen
        all lower ones. Tables that are read by id need it: `schema.IN_COMMIT_ORDER`. What can be written before is, to
        keep turns short.
        """
        self.database.wait_for_turn(connection)
        connection.execution_options(has_turn=True)

    def put(self, statement: Executable, values: Mapping[str, Any] | None = None) -> Sequence[Row[Any]]:
        """Execute a statement that is a transaction of its own, and return the rows that it returns.

        It takes one trip to a server instead of three. If the connection is lost, it is executed again over another, so
        it may do no harm twice.

        Raises:
            ReadOnly: A newer version made the schema.
        """
        if self._only_read is not None:
            raise ReadOnly(self._only_read)
        with self.database.errors("written"):
            try:
                return self._put(statement, values)
            except DBAPIError as error:
                if not error.connection_invalidated:
                    raise
            return self._put(statement, values)

    def _put(self, statement: Executable, values: Mapping[str, Any] | None) -> Sequence[Row[Any]]:
        with self._begun("put") as connection:
            result = connection.execute(statement, values)
            rows = result.all() if result.returns_rows else ()
            connection.commit()
            return rows

    def _begun(self, kind: str) -> Connection:
        """Return a connection in a transaction. If the server has closed it since its last one, another is made."""
        for is_last in (False, True):
            connection = self.engine.connect()
            try:
                connection.execution_options(transaction=kind).begin()
                break
            except BaseException as error:
                connection.close()
                if is_last or not (isinstance(error, DBAPIError) and error.connection_invalidated):
                    raise
        return connection

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    def opened(self) -> OpenDatabase:
        """Note that the schema can be used, and return the database."""
        self._is_open = True
        self._made.clear()
        return self

    def _keep(self, connection: Any, _: Any) -> None:
        if not self._is_open:
            self._made.append(connection)

    def abandon(self) -> None:
        """Close all connections, also those that an interrupt left half open: they would keep their locks."""
        self.close()
        for connection in self._made:
            with suppress(Exception):  # it may be closed by now
                connection.close()

    def use_schema(self, found: str | None, create: bool) -> None:
        """Upgrade a schema other than `HEAD`, or use it for reading only, as `Store.open` describes.

        Raises:
            ReadOnly: A newer version made it, and it is to be written.
            StoreError: It cannot be used.
        """
        if revisions.newer(found):
            only_read = self._newer(found)
            if create:
                raise only_read
            with self.read() as connection:
                missing = revisions.lacking(connection)
            if missing:
                raise StoreError(f"{only_read}, or to read it: there is no {', '.join(missing)} in it")
            self._only_read = str(only_read)
            _warn_once(f"{only_read}; until then it is only read")
        elif create and self.database.migrates_on_open:
            self.upgrade()
        else:
            has = "has no tables yet" if found is None else f"has schema {found}"
            raise StoreError(
                f"the database {self.database} {has}, and this version needs {HEAD}; tuner db upgrade brings it there"
            )

    def upgrade(self) -> str | None:
        """Bring the schema to `HEAD` in one transaction, one process at a time; return the revision before."""
        with self.write_in_order() as connection:
            found = revisions.found(connection)
            if revisions.newer(found):
                raise self._newer(found)
            revisions.upgrade(connection)
            if connection.scalar(select(func.count()).select_from(schema.StoreRow)) == 0:
                connection.execute(insert(schema.StoreRow).values(uuid=str(uuid4()), created_at=utc_now()))
        return found

    def _newer(self, found: str | None) -> ReadOnly:
        return ReadOnly(
            f"the database {self.database} has schema {found}, and this version knows up to {HEAD}; "
            "update the tuner to write it"
        )


def connect(database: Database | Path | str, *, writes: bool) -> tuple[OpenDatabase, str | None]:
    """Return the database, which has our tables or none, and the revision of their schema.

    Raises:
        StoreError: It is missing, unreadable, locked, or another program's.
    """
    if not isinstance(database, Database):
        database = database_at(database)
    opened = OpenDatabase(database.engine(writes=writes), database)
    try:
        with opened.read() as connection:
            if revisions.foreign(connection):
                raise StoreError(f"{database} is the database of another program; name another one with --db")
            return opened, revisions.found(connection)
    except BaseException:
        opened.abandon()
        raise


@cache
def _warn_once(line: str) -> None:
    logging.getLogger("tuner").warning("%s", line)
