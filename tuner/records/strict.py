"""Strict reading of JSON from untrusted sources: each field by name and type, numbers finite, sizes bounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeGuard, TypeVar

from tuner.errors import UsageError
from tuner.records.measurement import Interval

T = TypeVar("T")

_LONGEST_TEXT = 10_000
"""Characters of a text."""
_LONGEST_LIST = 10_000
"""Items of a list."""
LARGEST = 1e300
"""Largest absolute value of a number."""
MALFORMED = (AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError)
"""Errors of a reader of JSON that has another form: a field is missing, of another type, too large or too deep."""


class JsonObject:
    """A JSON object whose fields are read with the type that each must have.

    All methods raise `UsageError` if the field is missing or has another type.

    Args:
        data: The object, or anything else, which is refused.
        title: Name of the object in messages: "an answer".
    """

    def __init__(self, data: object, title: str) -> None:
        if not isinstance(data, dict):
            kind = type(data).__name__ if data is None or isinstance(data, str | int | float | list) else data
            raise UsageError(f"{title} is an object, not {kind}")
        self.data: dict[str, Any] = data
        self._title = title

    def object(self, name: str) -> JsonObject:
        """Return a nested object."""
        return JsonObject(self._value(name), name)

    def mapping(self, name: str) -> dict[str, Any]:
        """Return a nested object with any fields."""
        return self.object(name).data

    def optional(self, name: str, read: Callable[[str], T]) -> T | None:
        """Return None for null, else the field as `read` gives it."""
        return None if self._value(name) is None else read(name)

    def text(self, name: str) -> str:
        value = self._value(name)
        if not is_text(value) or len(value) > _LONGEST_TEXT:
            raise self.refusal(name, "a text")
        return value

    def any_text(self, name: str) -> str:
        """Return a text of any length."""
        value = self._value(name)
        if not is_text(value):
            raise self.refusal(name, "a text")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        values = self.items(name)
        if not all(is_text(value) and len(value) <= _LONGEST_TEXT for value in values):
            raise self.refusal(name, "a list of texts")
        return tuple(values)

    def boolean(self, name: str) -> bool:
        value = self._value(name)
        if not isinstance(value, bool):
            raise self.refusal(name, "true or false")
        return value

    def whole(self, name: str) -> int:
        """Return a whole number from 0 to 2^63 - 1."""
        return whole_number(self._value(name), name)

    def number(self, name: str) -> float:
        return self._number(name, self._value(name))

    def numbers(self, name: str) -> list[float]:
        """Return a list of numbers."""
        return [self._number(name, value) for value in self.items(name)]

    def measured(self, name: str) -> float:
        """Return a number of at least 0, which may be infinite."""
        value = self._value(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
            raise self.refusal(name, "a number of at least 0")
        return value

    def positive(self, name: str) -> float:
        """Return a number above 0."""
        value = self.number(name)
        if value <= 0:
            raise self.refusal(name, "a positive number")
        return value

    def interval(self, name: str) -> Interval:
        """Return a list of two numbers."""
        low, high = (self._number(name, value) for value in self.items(name, exactly=2))
        return low, high

    def items(self, name: str, exactly: int | None = None) -> list[Any]:
        """Return a list, with `exactly` that number of items if given."""
        value = self._value(name)
        if not isinstance(value, list) or len(value) > _LONGEST_LIST or exactly not in (None, len(value)):
            raise self.refusal(name, "a list" if exactly is None else f"a list of {exactly}")
        return value

    def refusal(self, name: str, kind: str) -> UsageError:
        """Return the error of a field that is not of that kind."""
        return UsageError(f"{self._title} has {kind} as {name}, not {str(self.data[name])[:40]!r}")

    def _number(self, name: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < LARGEST:
            raise self.refusal(name, "a number")
        return value

    def _value(self, name: str) -> Any:
        if name not in self.data:
            raise UsageError(f"{self._title} has {name}, and here it is missing")
        return self.data[name]


def is_text(value: object) -> TypeGuard[str]:
    """Return whether a value is a text that can be written as UTF-8."""
    if not isinstance(value, str):
        return False
    try:
        return value.isascii() or bool(value.encode())
    except UnicodeEncodeError:  # half of a surrogate pair
        return False


def whole_number(value: object, name: str) -> int:
    """Return a whole number from 0 to 2^63 - 1.

    Raises:
        UsageError: The value is none.
    """
    if type(value) is not int or not 0 <= value < 2**63:
        raise UsageError(f"{name} is a whole number, not {str(value)[:40]!r}")
    return value
