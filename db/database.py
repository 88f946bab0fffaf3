"""The interface of a database to the store. SQLite and PostgreSQL implement it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import ClassVar

from sqlalchemy import ColumnElement, Connection, Engine
from sqlalchemy.exc import DBAPIError, IntegrityError, TimeoutError

from tuner.errors import StoreError


class Database(ABC):
    """The location of a database and the way its kind is used. Its text has no password."""

    migrates_on_open: ClassVar[bool]
    """True if opening it to write upgrades its schema; else `tuner db upgrade` does."""

    @abstractmethod
    def __str__(self) -> str: ...

    @abstractmethod
    def exists(self) -> bool:
        """Return False if there is certainly none.

        Raises:
            StoreError: The system does not allow to look.
        """

    @abstractmethod
    def engine(self, *, writes: bool) -> Engine:
        """Return connections for a store that writes, or for one that only reads.

        The execution option `transaction` of a connection says what its transactions are, as `OpenDatabase` describes
        them: `read`, which is the default, `write`, or `put`, a transaction of one statement.

        Raises:
            StoreError: It does not exist, or may not be written.
        """

    @abstractmethod
    def wait_for_turn(self, connection: Connection) -> None:
        """Exclude all other transactions that do the same, from now to the end of this one, which writes."""

    @abstractmethod
    def now(self, connection: Connection) -> datetime:
        """Return the time, in UTC, by the clock that all users of the database share."""

    @abstractmethod
    def text_of_now(self, later_s: ColumnElement[float] | None = None) -> ColumnElement[str]:
        """Return the time of a statement, by the same clock, as columns have it; `later_s` is added."""

    @abstractmethod
    def size(self, connection: Connection) -> int:
        """Return the size of the database in bytes."""

    @abstractmethod
    def back_up(self, file: str) -> None:
        """Copy the database to a new file, while others use it.

        Raises:
            UsageError: This kind is backed up by other means, or the file exists.
        """

    @contextmanager
    def errors(self, done: str) -> Iterator[None]:
        """Raise `StoreError` that names the database for errors of the driver. `done`: `read` or `written`."""
        try:
            yield
        except IntegrityError:
            raise  # an error of this program, not of the user
        except DBAPIError as error:
            raise StoreError(f"the database {self} cannot be {done}: {first_line(error.orig)}") from error
        except TimeoutError as error:
            raise StoreError(f"the database {self} cannot be {done}: all connections are in use") from error


def first_line(error: BaseException | None) -> str:
    """Return the first line of a driver's message, which is followed by advice."""
    return str(error).strip().partition("\n")[0]
