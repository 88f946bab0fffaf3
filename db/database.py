"""What a database is to the store: a place that is connected to. SQLite and PostgreSQL are the leaves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import ClassVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, IntegrityError, TimeoutError

from tuner.errors import StoreError

WRITER_WAITS_S, READER_WAITS_S = 10, 1
"""How long one who writes, and one who only reads, waits for others before giving up."""


class Database(ABC):
    """Where a database is, and how its kind is used. Its text is for people, and shows no password."""

    migrates_on_open: ClassVar[bool]
    """Whether who opens it to write brings its schema up to date; else `tuner db upgrade` does."""

    @abstractmethod
    def __str__(self) -> str: ...

    @abstractmethod
    def exists(self) -> bool:
        """False where there is surely nothing.

        Raises:
            StoreError: the system refuses to look.
        """

    @abstractmethod
    def engine(self, *, writes: bool) -> Engine:
        """Connections to it, for a store that writes or for one that only reads.

        A transaction of a connection with the execution option `writes` waits for all others of that kind, from its
        start to its end. Any other sees one state of the database.

        Raises:
            StoreError: it is not there, or may not be written.
        """

    @abstractmethod
    def now(self, connection: Connection) -> datetime:
        """The time, in UTC, by the one clock that all who use the database share."""

    @abstractmethod
    def size(self, connection: Connection) -> int:
        """Bytes that it takes."""

    @abstractmethod
    def back_up(self, file: str) -> None:
        """Copies it to a file that is not there yet, while others go on.

        Raises:
            UsageError: this kind is backed up by other means, or the file is there.
        """

    @contextmanager
    def errors(self, done: str) -> Iterator[None]:
        """Names the database in what the driver raises. `done`: what cannot be done to it, `read`."""
        try:
            yield
        except IntegrityError:
            raise  # ours to mend, not the user's
        except DBAPIError as error:
            raise StoreError(f"the database {self} cannot be {done}: {first_line(error.orig)}") from error
        except TimeoutError as error:
            raise StoreError(f"the database {self} cannot be {done}: all connections are in use") from error


def first_line(error: BaseException | None) -> str:
    """What a driver says, without its advice."""
    return str(error).strip().partition("\n")[0]
