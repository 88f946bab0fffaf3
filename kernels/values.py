"""Values of knobs and attributes, and their canonical text; standard library only."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from math import isfinite

Value = int | float | bool | str | None
"""Value of a knob or an attribute; it passes through JSON, SQL and Triton unchanged. None is for knobs only."""

_PLAIN = re.compile(r'[^\s"]+')
"""Strings that stand without quotes in a canonical text."""
_STATED = re.compile(r'(?:^|\s)([A-Za-z_]\w*)=("(?:[^"\\]|\\.)*"|\S*)')
"""A name and its value in a canonical text."""
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


class Unset(Enum):
    """The type of `UNSET`."""

    UNSET = "unset"

    def __repr__(self) -> str:
        return "UNSET"


UNSET = Unset.UNSET
"""Default of a knob that has none, since None may be a knob's value."""


def is_value(value: object) -> bool:
    """Return whether a knob may have this value: a finite number, a bool, a string or None."""
    return value is None or type(value) in (int, bool, str) or (type(value) is float and isfinite(value))


def equal(a: object, b: object) -> bool:
    """Return whether two values are the same choice: 1.0 is 1, and True is not 1."""
    return a == b and isinstance(a, bool) == isinstance(b, bool)


def as_choice(choices: Iterable[Value], value: Value) -> Value:
    """Return the choice that equals a value, or the value itself if no choice does."""
    return next((choice for choice in choices if equal(choice, value)), value)


def spells(given: object, choice: Value) -> bool:
    """Return whether a value, or its text on a command line or in a URL, means this choice."""
    text = str(given)
    if isinstance(choice, bool):
        return text.capitalize() == str(choice)  # JSON and URLs write true
    if isinstance(choice, int | float):
        return not isinstance(given, bool) and _number(text) == choice
    return given is None if choice is None else text == choice


def listed(choices: Collection[Value], joint: str = ", ") -> str:
    """Return choices as messages show them; more than 8 successive whole numbers are shown as a range."""
    first, count = next(iter(choices), None), len(choices)
    if count > 8 and type(first) is int and list(choices) == list(range(first, first + count)):
        return f"{first} to {first + count - 1}"
    return joint.join(map(str, choices))


def ordering(value: Value) -> tuple[int, int | float | str]:
    """Return a sort key of a value: None, then bools, then numbers by value, then strings."""
    if value is None or isinstance(value, bool):
        return (0, 0) if value is None else (1, value)
    return (3, value) if isinstance(value, str) else (2, value)


def canonical_text(values: Mapping[str, Value], *, ordered: bool = False) -> str:
    """Return `NAME=VALUE` for each value, sorted by name unless they are ordered.

    A string with whitespace or quotes is quoted, so that different values have different texts.
    """
    names = values if ordered else sorted(values)
    return " ".join(f"{name}={value_text(values[name])}" for name in names)


def value_text(value: Value) -> str:
    """Return a value as canonical texts have it."""
    if isinstance(value, str) and (value == "None" or not _PLAIN.fullmatch(value)):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def stated(values: Mapping[str, Value], text: str) -> Mapping[str, Value]:
    """Return the values that a canonical text names."""
    names = parsed(text)
    return {name: value for name, value in values.items() if name in names}


def parsed(text: str) -> dict[str, str]:
    """Return the names and the texts of the values in a canonical text, without quotes."""
    return {match[1]: _unquoted(match[2]) for match in _STATED.finditer(text)}


def _unquoted(text: str) -> str:
    try:
        return str(json.loads(text)) if text.startswith('"') else text
    except ValueError:
        return text


def _number(text: str) -> int | float | None:
    if re.fullmatch(r"[+-]?[0-9]+", text, re.ASCII):
        return int(text) if len(text) < 64 else None
    return float(text) if _DECIMAL.fullmatch(text) else None
