"""Encodings of values that SQLite or PostgreSQL refuses, so that both keep them."""

from __future__ import annotations

import json
import re
from typing import Any

from sqlalchemy import Dialect, Double, String
from sqlalchemy.types import TypeDecorator, TypeEngine

_STRING_OR_NO_JSON = re.compile(r'"(?:[^"\\]|\\.)*"|-?Infinity|NaN')
_AS_JSON = {"Infinity": "1e999", "-Infinity": "-1e999", "NaN": "null"}


def json_text(value: Any) -> str:
    """Return standard JSON, as PostgreSQL requires it.

    An infinite number is written as `1e999`, which no float can hold and which is read as infinite. NaN becomes null,
    as in SQLite's columns.
    """
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        return _STRING_OR_NO_JSON.sub(lambda found: _AS_JSON.get(found[0], found[0]), json.dumps(value))


class _WithoutNul(TypeDecorator[str]):
    """Text in PostgreSQL, which refuses NUL: it is kept as SUB and `0`, and SUB itself as SUB and `1`."""

    impl = String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else value.replace("\x1a", "\x1a1").replace("\x00", "\x1a0")

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        if value is None or "\x1a" not in value:
            return value
        return value.replace("\x1a0", "\x00").replace("\x1a1", "\x1a")


class _WithoutNan(TypeDecorator[float]):
    """Numbers in PostgreSQL, which distinguishes NaN from null."""

    impl = Double
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: Dialect) -> float | None:
        return None if value is None or value != value else value


Text: TypeEngine[str] = String().with_variant(_WithoutNul(), "postgresql")
"""Text with any characters."""
Number: TypeEngine[float] = Double().with_variant(_WithoutNan(), "postgresql")
"""A float. Infinite numbers are kept; NaN is null."""
