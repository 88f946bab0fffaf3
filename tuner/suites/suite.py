"""Suites: lists of problems that are searched or compared together, shipped with the package or in a JSON file.

A file is a list of objects, each with `op`, the name or file of a kernel, and the values of a problem:
`[{"op": "gemm", "M": 4096, "layout": "nt"}, ...]`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from tuner.errors import UnknownName, UsageError, reason
from tuner.kernels.spec import Problem, Signature
from tuner.records.strict import MALFORMED

_SUFFIX = ".json"
_MAX_NAME = 120
"""Characters of an unknown name that an error shows."""


@dataclass(frozen=True)
class Entry:
    """One problem of a suite."""

    reference: str
    """Name or file of the kernel, as the catalog takes it."""
    signature: Signature
    problem: Problem


@dataclass(frozen=True)
class Suite:
    """A named list of different problems."""

    name: str
    entries: tuple[Entry, ...]
    note: str = ""
    """Sentence on problems that were left out, for the user."""

    def only(self, wanted: Mapping[str, str]) -> Suite:
        """Return the suite of the problems that have all these values.

        Args:
            wanted: Values by the name of a dim or attribute, `dtype` or `op`, which may be the kernel's file.

        Raises:
            UsageError: No problem has them.
        """
        selected = [entry for entry in self.entries if _has(entry, wanted)]
        if not selected:
            values = " ".join(f"{name}={value}" for name, value in wanted.items())
            raise UsageError(
                f"no problem of {self.name} has {values[:80]}; the first is {self.entries[0].problem.text}"
            )
        return Suite(self.name, tuple(selected), self.note)


def names() -> list[str]:
    """Return the names of the suites that ship with the package, sorted."""
    return sorted(
        file.name.removesuffix(_SUFFIX) for file in (files("tuner") / "suites").iterdir() if file.name.endswith(_SUFFIX)
    )


def load(name: str, signature: Callable[[str], Signature], dtype: str | None = None) -> Suite:
    """Return the shipped suite called `name`, or the one in the file `name`.

    Args:
        signature: Returns the signature of the kernel with a reference.
        dtype: Replaces the dtype of all problems.

    Raises:
        UnknownName: No suite or no kernel has the name.
        UsageError: The file is not a suite, or a problem does not fit its signature.
    """
    entries = {entry.problem.text: entry for entry in _entries(name, _items(name), signature, dtype)}
    return Suite(Path(name).name.removesuffix(_SUFFIX), tuple(entries.values()))


def size(name: str) -> int:
    """Return the number of problems of a suite, without loading a kernel.

    Raises:
        UnknownName: No suite has the name.
        UsageError: The file is not a suite.
    """
    return len(_items(name))


def _items(name: str) -> list[dict[str, Any]]:
    try:
        items = json.loads(_text(name))
    except MALFORMED as error:
        raise UsageError(f"the suite {name} is not JSON: {reason(error)}") from error
    if not (isinstance(items, list) and items and all(isinstance(item, dict) and "op" in item for item in items)):
        raise UsageError(f'a suite is a list of objects such as {{"op": "gemm", "M": 4096}}, and {name} is not one')
    return items


def _text(name: str) -> str:
    if name in names():
        return (files("tuner") / "suites" / f"{name}{_SUFFIX}").read_text()
    if not name.endswith(_SUFFIX) or not Path(name).is_file():
        raise UnknownName(
            f"no suite is called {name[:_MAX_NAME]!r}; there are {', '.join(names())}, or give a file.json"
        )
    try:
        return Path(name).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the suite {name} cannot be read: {reason(error)}") from error


def _entries(
    name: str, items: list[dict[str, Any]], signature: Callable[[str], Signature], dtype: str | None
) -> Iterator[Entry]:
    known: dict[str, Signature] = {}
    for number, item in enumerate(items, 1):
        reference = str(item["op"])
        if reference not in known:
            known[reference] = signature(reference)
        values = {key: value for key, value in item.items() if key != "op"}
        try:
            problem = known[reference].problem(values if dtype is None else {**values, "dtype": dtype})
        except UsageError as error:
            raise UsageError(f"{name}, problem {number}: {error}") from error
        yield Entry(reference, known[reference], problem)


def _has(entry: Entry, wanted: Mapping[str, str]) -> bool:
    values = {"op": entry.problem.op, **entry.problem.values}
    is_named = wanted.get("op") == entry.reference
    return all(str(values.get(name)) == value for name, value in wanted.items() if name != "op" or not is_named)
