"""Rules for the fields of a kernel file. Each raises KernelFault: the rule, then the value, then the way out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from tuner.errors import KernelFault, UsageError
from tuner.kernels.dtypes import dtype_name, shown
from tuner.kernels.values import is_value

RESERVED = frozenset(
    {
        *("as_json", "budget", "db", "device", "device_id", "dry_run", "dtype", "effort", "file", "force"),
        *("fresh", "gpu", "help", "imported", "joint", "json", "list", "list_", "model", "no_warm_start"),
        *("only", "out", "partial", "plot", "policy", "replay", "sampler", "search", "seed", "shapes"),
        *("shared", "strict", "suite", "tp", "trials", "warm_start", "op", "source", "definition", "triton"),
        *("driver", "ptxas", "captured", "widen", "check", "compare_environments", "demand", "folder", "no_resume"),
        *(
            "config",
            "note",
            "on",
            "python",
            "report",
            "resume",
            "slower",
            "stale",
            "threshold",
            "to",
            "trace",
            "vendors",
        ),
    }
)
"""Names that no dim and no attribute may have: they mean something else on the command line or to the service."""


def check_name(kind: str, name: object, *, reserved: bool = False) -> None:
    """Raise KernelFault unless `name` can be an option and a keyword argument.

    Args:
        kind: dim, knob, attribute or operand.
        reserved: also refuse the names in `RESERVED`.
    """
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,63}", name, re.ASCII):
        raise KernelFault(
            f"the name of {_a(kind)} is a letter, then letters, digits and _, up to 64, not {shown(name)}; rename it"
        )
    if reserved and name in RESERVED:
        raise KernelFault(f"{_a(kind)} has a name of its own, and {name!r} is an option of the command line; rename it")


def check_text(owner: str, field: str, value: object) -> None:
    """Raise KernelFault unless `value` is a string."""
    if not isinstance(value, str):
        raise KernelFault(f"{owner}: {field} is a string, not {shown(value)}; quote it")


def check_tuple(owner: str, field: str, value: object, kind: type, plural: str) -> None:
    """Raise KernelFault unless `value` is a tuple of instances of `kind`."""
    if not isinstance(value, tuple):
        raise KernelFault(f"{owner}: {field} is a tuple of {plural}, not {shown(value)}; write (..., )")
    for item in value:
        if not isinstance(item, kind):
            raise KernelFault(f"{owner}: {field} is a tuple of {plural}, and has {shown(item)}; replace it")


def check_choices(owner: str, choices: object, *, none: bool = False) -> None:
    """Raise KernelFault unless `choices` is a tuple of distinct numbers, bools or strings, all of one kind.

    Args:
        none: one choice may be None.
    """
    rule = f"{owner}: choices is a tuple of numbers, of bools or of strings"
    if not isinstance(choices, tuple):
        raise KernelFault(f"{rule}, not {shown(choices)}; write (64, 128), or (64,) for a single choice")
    if not choices:
        raise KernelFault(f"{owner}: choices has at least one value, not (); add one")
    for choice in choices:
        if not is_value(choice) or (choice is None and not none):
            raise KernelFault(f"{rule}, and has {shown(choice)}; replace it")
    kinds = {_kind(choice): choice for choice in choices if choice is not None}
    if len(kinds) > 1:
        (first, _), (other, choice), *_ = kinds.items()
        raise KernelFault(f"{owner}: choices are of one kind, not {first} and {other} ({shown(choice)}); replace one")
    if twice := repeated(choices):
        raise KernelFault(f"{owner}: choices are distinct, and {shown(twice[0])} is there twice; remove one")


def _kind(choice: Any) -> str:
    """Return the kind of a choice: ints and floats are both numbers."""
    return "number" if type(choice) in (int, float) else type(choice).__name__


def check_default(owner: str, default: object, choices: tuple[Any, ...]) -> None:
    """Raise KernelFault unless `default` is one of the choices."""
    if not any(type(default) is type(choice) and default == choice for choice in choices):
        shown_choices = ", ".join(map(str, choices))
        raise KernelFault(f"{owner}: default is one of {shown_choices}, not {shown(default)}; add it to the choices")


def check_dtype(owner: str, dtype: object) -> None:
    """Raise KernelFault unless `dtype` is the short name of a dtype."""
    try:
        name = dtype_name(dtype)
    except UsageError as error:
        raise KernelFault(f"{owner}: {error}") from error
    if name != dtype:
        raise KernelFault(f"{owner}: a dtype goes by its short name, not {shown(dtype)}; write {name!r}")


def check_whole(owner: str, field: str, value: object, least: int, most: int | None = None) -> None:
    """Raise KernelFault unless `value` is an int from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        reach = f"from {least} on" if most is None else f"from {least} to {most}"
        raise KernelFault(f"{owner}: {field} is a whole number {reach}, not {shown(value)}; correct it")


def check_distinct(owner: str, field: str, names: Iterable[str]) -> None:
    """Raise KernelFault if a name is there twice."""
    if twice := repeated(names):
        raise KernelFault(f"{owner}: {field} have distinct names, and {twice[0]} is there twice; rename one")


def check_function(owner: str, field: str, value: object) -> None:
    """Raise KernelFault unless `value` can be called."""
    if not callable(value):
        raise KernelFault(f"{owner}: {field} is a function, not {shown(value)}; define it")


def check_mapping(owner: str, field: str, value: object) -> None:
    """Raise KernelFault unless `value` is a mapping with strings as keys."""
    if not isinstance(value, Mapping):
        raise KernelFault(f"{owner}: {field} is a dict, not {shown(value)}; write {{'NAME': value}}")
    for name in value:
        check_text(owner, f"each key of {field}", name)


def overlaps(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Return whether two elements may share memory: if a stride does not step over all that smaller strides reach."""
    reached = 0
    for stride, size in sorted((stride, size) for size, stride in zip(shape, strides, strict=True) if size > 1):
        if stride <= reached:
            return True
        reached += stride * (size - 1)
    return False


def repeated(values: Iterable[Any]) -> list[Any]:
    """Return the values that are there more than once."""
    seen: set[Any] = set()
    return [value for value in values if value in seen or seen.add(value)]  # type: ignore[func-returns-value]


def _a(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeio" else f"a {kind}"
