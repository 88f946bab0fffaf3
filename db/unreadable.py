"""Rows that cannot be read: each is left out, named in one warning and counted, so that it costs no other row."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from typing import Any, Protocol, TypeVar

from tuner.db.settings import SETTINGS
from tuner.errors import TunerError, UsageError, reason
from tuner.records.strict import MALFORMED, is_text

T = TypeVar("T")


class HasId(Protocol):
    """A row with its id."""

    @property
    def id(self) -> Any:
        """The id of the row."""


R = TypeVar("R", bound=HasId)


class BrokenJson:
    """Value of a JSON column whose text is no JSON. Readers refuse it, since it is of no type that they accept."""

    def __init__(self, why: str) -> None:
        self.why = why

    def __repr__(self) -> str:
        return f"broken JSON ({self.why})"


class UnreadableRows:
    """The rows that one store could not read.

    Args:
        database: Name of the database in warnings.
    """

    def __init__(self, database: str) -> None:
        self._database = database
        self._seen: dict[str, set[object]] = {}

    def add(self, table: str, id: object, error: Exception) -> None:
        """Count a row, once, and name it in a warning."""
        seen = self._seen.setdefault(table, set())
        if len(seen) < SETTINGS.counted_unreadable:
            seen.add(id)
        why = str(error) if isinstance(error, TunerError) else reason(error)
        _warn_once(f"{self._database}: row {id} of {table} is left out, since it cannot be read: {printable(why)}")

    def read(self, table: str, rows: Iterable[R], reader: Callable[[R], T]) -> list[T]:
        """Return the values that a reader makes of rows, without the rows that it refuses."""
        found = list[T]()
        for row in rows:
            try:
                found.append(reader(row))
            except (UsageError, *MALFORMED) as error:
                self.add(table, row.id, error)
        return found

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of rows by table."""
        return {table: len(seen) for table, seen in self._seen.items()}


def json_value(data: str | bytes) -> Any:
    """Return the value of a JSON column, or `BrokenJson`: no JSON, NaN, or text that is not valid Unicode."""
    try:
        text = data if isinstance(data, str) else data.decode()
        value, end = _decoder.raw_decode(text)
        if end != len(text):  # space around it, or more than JSON
            value = _decoder.decode(text)
        if not text.isascii() or "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except MALFORMED as error:
        return BrokenJson(reason(error))
    return value


def column_values(row: Any, table: Any) -> dict[str, Any]:
    """Return the values of a row of a table, by column.

    Raises:
        UsageError: A value is not of its column's type.
    """
    values = dict(row._mapping)
    for column in table.__table__.columns:
        value, kind = values[column.name], column.type.python_type
        if value is None and column.nullable:
            continue
        if not _FITS[kind](value):
            raise UsageError(f"{column.name} is {_KINDS[kind]}, not {printable(repr(value))[:60]}")
    return values


def is_finite(value: object) -> bool:
    """Return whether all numbers of a JSON value are finite, so that a document can hold it."""
    try:
        return bool(_encode(value))
    except ValueError:
        return False


_encode = json.JSONEncoder(allow_nan=False).encode


def printable(text: str) -> str:
    """Return a text that can be written as UTF-8, with escapes for bytes that are none."""
    return text.encode(errors="backslashreplace").decode()


_KINDS = {str: "a text in UTF-8", int: "a whole number", float: "a number", object: "a JSON object of finite numbers"}
_FITS: Mapping[type, Callable[[object], bool]] = {
    str: is_text,
    int: lambda value: type(value) is int,
    float: lambda value: type(value) in (int, float) and value == value,
    object: lambda value: isinstance(value, dict) and is_finite(value),
}
"""Checks by the type of a column; those of other types are not listed row by row."""


def _constant(name: str) -> float:
    """Return the number of a constant that Python writes into JSON, as 0.1 did for infinite ones."""
    if name == "NaN":
        raise ValueError("NaN is not a number in JSON")
    return float(name)


_decoder = json.JSONDecoder(parse_constant=_constant)
text_value = partial(str, encoding="utf-8", errors="surrogateescape")
"""Return the text of bytes that should be UTF-8; `is_text` is false if they are not."""


@lru_cache(SETTINGS.warned_unreadable)
def _warn_once(line: str) -> None:
    logging.getLogger("tuner").warning("%s", line)
