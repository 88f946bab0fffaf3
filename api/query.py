"""Parsing of requests: the query, its problem and its device, from names and values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from tuner.api.view import View
from tuner.errors import UnknownName, UsageError
from tuner.kernels.spec import Problem, Signature
from tuner.lookup.patterns import described
from tuner.lookup.query import COMPARED, Query

V = TypeVar("V")

_RESERVED = ("op", "device", "strict", *COMPARED)
"""Names of a request that do not describe the problem."""
WHOLE = re.compile("[0-9]{1,10}")
"""Text of a whole number. Python reads many other texts as a number too."""
_STRICT = {"0": False, "1": True, "True": True, "False": False}


def parse_values(query: bytes) -> dict[str, str]:
    """Return the names and values of a query string.

    Raises:
        UsageError: a name is given more than once.
    """
    text = query.decode("latin-1")
    if "%" in text or "+" in text:
        return _unique(parse_qsl(text, keep_blank_values=True))
    pairs = (pair.partition("=") for pair in text.split("&") if pair)  # nothing to decode: a tenth of the time
    return _unique((name, value) for name, _, value in pairs)


def _unique(items: Iterable[tuple[str, V]]) -> dict[str, V]:
    given: dict[str, V] = {}
    for name, value in items:
        if name in given:
            raise UsageError(f"{name[:40]} is given more than once")
        given[name] = value
    return given


def parse_object(body: bytes, names: tuple[str, ...] | None = None) -> dict[str, Any]:
    """Return the JSON object of a body.

    Args:
        names: the names it may have; None accepts any.

    Raises:
        UsageError: the body is not one JSON object, or has another name.
    """
    try:
        given = json.loads(body, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the body must be one JSON object, and cannot be parsed: {str(error)[:100]}") from error
    if not isinstance(given, dict):
        raise UsageError(f"the body must be one JSON object, not {type(given).__name__}")
    for name in given:
        if names is not None and name not in names:
            raise UsageError(f"the body has {', '.join(names)}, not {name[:40]!r}")
    return given


def parse_signatures(given: Mapping[str, object], view: View) -> Sequence[Signature]:
    """Return the signatures of the request's op, the newest first: one, unless its captured calls have several.

    Raises:
        UsageError: op is missing or no text.
        UnknownName: no op has the name.
    """
    op, known = given.get("op"), ", ".join(sorted(view.signatures)) or "none yet"
    if op is None:
        raise UsageError(f"op is missing; it is one of {known}")
    if not isinstance(op, str):
        raise UsageError(f"op is text, not {type(op).__name__}")
    if op not in view.signatures:
        raise UnknownName(f"no op is called {op[:80]!r}; known are {known}")
    return view.patterns.get(op) or (view.signatures[op],)


def parse_device(given: Mapping[str, object]) -> str | None:
    """Return the device that the request names, or None."""
    return _text(given, "device")


def parse_problem(given: Mapping[str, object], signatures: Sequence[Signature]) -> tuple[Signature, Problem]:
    """Return the problem that the request describes by all names that are not reserved, and its signature."""
    values = {name: value for name, value in given.items() if name not in _RESERVED}
    return described(signatures, values, Signature.problem)


def parse_query(given: Mapping[str, object], view: View) -> tuple[Query, Signature]:
    """Return the query of a request, and the signature of its problem.

    Raises:
        UsageError: a value is missing or not understood; the message names the field.
        UnknownName: no op has the name.
    """
    signature, problem = parse_problem(given, parse_signatures(given, view))
    strict = _STRICT.get(str(given.get("strict", "0")))
    if strict is None:
        raise UsageError(f"strict is 0 or 1, not {str(given['strict'])[:40]!r}")
    if strict and "triton" not in given:
        raise UsageError("strict=1 compares versions, so it needs triton")
    return Query(problem, strict=strict, **{name: _text(given, name) for name in COMPARED}), signature


def _text(given: Mapping[str, object], name: str) -> str | None:
    value = given.get(name)
    if value is None or isinstance(value, str):
        return value
    raise UsageError(f"{name} is text, not {type(value).__name__}")
