"""What a request asks, out of the names and values it brings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import parse_qsl

from tuner.api.view import View
from tuner.errors import UnknownName, UsageError
from tuner.kernels.spec import Problem, Signature
from tuner.lookup.table import COMPARED, Query, device_asked

_ABOUT = ("op", "device", "strict", *COMPARED)
"""Names that are not the problem's own."""
_STRICT = {"0": False, "1": True, "True": True, "False": False}


def values_of(query: bytes) -> dict[str, str]:
    """The values of a query string.

    Raises:
        UsageError: a name is there more than once.
    """
    text = query.decode("latin-1")
    if "%" in text or "+" in text:
        return _once(parse_qsl(text, keep_blank_values=True))
    pairs = (pair.partition("=") for pair in text.split("&") if pair)  # nothing to decode: a tenth of the time
    return _once((name, value) for name, _, value in pairs)


def _once(items: Iterable[tuple[str, str]]) -> dict[str, str]:
    given: dict[str, str] = {}
    for name, value in items:
        if name in given:
            raise UsageError(f"{name[:40]} is given more than once")
        given[name] = value
    return given


def signature_of(given: Mapping[str, object], view: View) -> Signature:
    """The signature of the op that is asked about."""
    op, known = given.get("op"), ", ".join(sorted(view.signatures)) or "none yet"
    if op is None:
        raise UsageError(f"op is missing; it is one of {known}")
    if not isinstance(op, str):
        raise UsageError(f"op is text, not {type(op).__name__}")
    if op not in view.signatures:
        raise UnknownName(f"no op is called {op[:80]!r}; known are {known}")
    return view.signatures[op]


def device_of(given: Mapping[str, object], own: str | None, view: View) -> str:
    """The device that is asked about, whether it is named or not."""
    return device_asked(_text(given, "device"), own, view.devices, view.aliases)


def problem_of(given: Mapping[str, object], signature: Signature) -> Problem:
    """The problem that is asked about; every name that is not the question's own describes it."""
    return signature.problem({name: value for name, value in given.items() if name not in _ABOUT})


def asked(given: Mapping[str, object], own: str | None, view: View) -> tuple[Query, str]:
    """The question, and the device it is about.

    Raises:
        UsageError: it cannot be understood; the message names the field.
    """
    problem = problem_of(given, signature_of(given, view))
    strict = _STRICT.get(str(given.get("strict", "0")))
    if strict is None:
        raise UsageError(f"strict is 0 or 1, not {str(given['strict'])[:40]!r}")
    if strict and "triton" not in given:
        raise UsageError("strict=1 compares versions, so it needs triton")
    compared = {name: _text(given, name) for name in COMPARED}
    return Query(problem, strict=strict, **compared), device_of(given, own, view)


def _text(given: Mapping[str, object], name: str) -> str | None:
    value = given.get(name)
    if value is None or isinstance(value, str):
        return value
    raise UsageError(f"{name} is text, not {type(value).__name__}")
