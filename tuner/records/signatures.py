"""Signatures and configs from untrusted sources."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tuner.errors import UsageError
from tuner.kernels.spec import MAX_SIZE, Config, Knob, Problem, Signature, dtype_name
from tuner.kernels.values import is_value as may_be_chosen
from tuner.records.strict import JsonObject, whole_number

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_LONGEST_VALUE = 200
"""Characters of a knob's value."""


def checked_config(signature: Signature, values: Mapping[str, Any]) -> Config:
    """Return the config of these values, each of a type that its knob's choices have.

    A value that is not among the choices is kept, as `Signature.config` does; the kernel's `valid` decides on it.

    Raises:
        UsageError: A knob is unknown or missing, or its value has another type.
    """
    config = signature.config(values)
    for knob in signature.knobs:
        value = config[knob.name]
        if not is_value(value) or not any(_is_of_kind(value, choice) for choice in knob.choices):
            kinds = {"None" if choice is None else type(choice).__name__ for choice in knob.choices}
            raise UsageError(f"{signature.op}: {knob.name} is {' or '.join(sorted(kinds))}, not {str(value)[:40]!r}")
    return config


def stored_problem(signature: Signature, values: Mapping[str, Any]) -> Problem:
    """Return the problem of stored values.

    Captured calls of one text may have been stored with attributes that only one of them has, all at their default.

    Raises:
        UsageError: The signature does not describe them.
    """
    if signature.captured:
        values = {name: value for name, value in values.items() if value != "" or name in signature.parameters}
    return signature.problem(values)


def imported_config(signature: Signature, values: Mapping[str, Any]) -> Config:
    """Return the config of an imported answer, whose knobs need not be those of the signature.

    Raises:
        UsageError: A name cannot be a knob's, or a value cannot.
    """
    for name, value in values.items():
        if not is_name(name) or value is None or not is_value(value):
            raise UsageError(f"{signature.op}: {name[:40]!r} is not a knob whose value is a number, a bool or a text")
    return without_choices(signature, values).config(values)


def without_choices(signature: Signature, knobs: Iterable[str]) -> Signature:
    """Return the signature with these knobs, none of which has choices, for the configs of an imported answer."""
    return replace(signature, knobs=tuple(Knob(name, ()) for name in knobs))


def lacks_choices(signature: Signature) -> bool:
    """Return whether no knob has choices: the signature came with imported answers, and no search can use it."""
    return not any(knob.choices for knob in signature.knobs)


def signature_from_json(data: object) -> Signature:
    """Return the signature that `Signature.as_json` wrote.

    Raises:
        UsageError: A field is missing or has another type, a name or a choice is invalid, or a default is not a choice.
    """
    given = JsonObject(data, "a signature")
    for name in ("dims", "knobs", "attributes"):
        for item in given.items(name):
            _check_item(JsonObject(item, f"one of {name}"), name)
    for dtype in given.texts("dtypes"):
        dtype_name(dtype)
    given.text("op"), given.text("summary")
    if "size_limits" in given.data:
        for item in given.items("size_limits"):
            _check_size_limit(JsonObject(item, "one of size_limits"))
    if "captured" in given.data:
        given.boolean("captured")
    signature = Signature.from_json(given.data)
    choices = {attribute.name: attribute.choices for attribute in signature.attributes}
    for limit in signature.size_limits:
        limit.check(signature.op, [dim.name for dim in signature.dims], choices)
    if not signature.dims or not signature.dtypes:
        raise UsageError(f"{signature.op}: a signature has at least one dim and one dtype")
    if not lacks_choices(signature):
        for knob in signature.knobs:
            if not knob.choices:
                raise _no_choices(knob.name)
    known = list[object]()
    for dim in signature.dims:
        if isinstance(dim.default, str) and dim.default not in known:
            raise UsageError(f"{signature.op}: {dim.name} defaults to a dim before it, not to {dim.default[:40]!r}")
        known.append(dim.name)
    return signature


def _check_item(item: JsonObject, kind: str) -> None:
    """Raise `UsageError` if this is not a valid dim, knob or attribute."""
    if not is_name(item.text("name")):
        raise UsageError(f"a name is letters, digits and _, not {item.text('name')[:40]!r}")
    item.text("help")
    default = item.data.get("default")
    if kind == "dims":
        if default is not None and not (isinstance(default, str) or whole_number(default, "a dim's default") >= 1):
            raise UsageError("a dim's default is a size or another dim's name")
        if "ranges" in item.data:
            for last in item.items("ranges"):
                whole_number(last, "one of ranges")
        return
    if kind == "attributes" and item.data.get("choices", ()) is None:
        item.texts("dtypes")
        if not is_value(default) or not isinstance(default, str):
            raise UsageError(f"{item.text('name')}: the default of an open attribute is a text")
        return
    choices = item.items("choices")
    if not all(map(is_value, choices)) or (kind == "attributes" and (not choices or None in choices)):
        raise _no_choices(item.text("name"))
    if kind == "attributes":
        item.texts("dtypes")
    if default not in choices and not (kind == "knobs" and default is None):
        raise UsageError(f"{item.text('name')}: the default is one of the choices")


def _check_size_limit(item: JsonObject) -> None:
    """Raise `UsageError` if a field of a `SizeLimit` is missing or has another type."""
    item.text("dim"), item.whole("most"), item.text("attribute"), item.items("choices")


def _is_of_kind(value: object, choice: object) -> bool:
    """Return whether a value has the type of a choice: an int may stand for a float."""
    return type(value) is type(choice) or (type(value) is int and type(choice) is float)


def _no_choices(name: str) -> UsageError:
    return UsageError(f"{name}: choices are numbers, yes or no, or texts, and at least one")


def is_name(text: str) -> bool:
    """Return whether a dim, an attribute or a knob can be called so."""
    return _NAME.fullmatch(text) is not None


def is_value(value: object) -> bool:
    """Return whether a value passes through Triton unchanged."""
    if isinstance(value, str):
        return len(value) <= _LONGEST_VALUE
    return may_be_chosen(value) and (not isinstance(value, int) or abs(value) <= MAX_SIZE)
