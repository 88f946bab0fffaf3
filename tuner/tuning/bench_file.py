"""The file of `tuner bench --out`: rows that are not measured again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner.errors import UsageError, reason
from tuner.records.files import write_atomically
from tuner.records.strict import MALFORMED
from tuner.tuning.bench import Subject, still_stands
from tuner.tuning.bench_row import Row

_FORMAT = 2
"""Format of the file. Format 1 named a contender's `speedup` and `speedup_interval` otherwise."""
_FIELDS_OF_1 = {"ratio": "speedup", "interval": "speedup_interval"}


class BenchFile:
    """Rows by problem, card and versions, so that suites and cards of any number share a file. Without a file, no rows.

    Raises:
        UsageError: the file cannot be read, or has another format.
    """

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._documents: tuple[Mapping[str, Any], ...] = ()
        if file is not None and file.exists():
            self._documents = _read(file)

    def row(self, subject: Subject) -> Row | None:
        """Return the row of a subject if measuring the subject again would be the same measurement; else None.

        Raises:
            UsageError: a row of the problem lacks a field, or has one of another type.
        """
        for document in self._documents:
            if (document["op"], document["problem"]) == (subject.problem.op, subject.problem.values):
                try:
                    row = Row.from_json(subject.problem, document)
                except MALFORMED as error:
                    raise _malformed(self._file, error) from error
                if still_stands(row, subject):
                    return row
        return None

    def keep(self, row: Row) -> None:
        """Write a row, in place of an earlier one of the same problem, card and versions.

        Raises:
            UsageError: the file cannot be written.
        """
        if self._file is None:
            return
        document = row.as_json()
        others = [other for other in self._documents if _identity(other) != _identity(document)]
        self._documents = (*others, document)
        text = json.dumps({"format": _FORMAT, "rows": self._documents}, indent=1)
        try:
            write_atomically(self._file, text)
        except OSError as error:
            raise UsageError(f"{self._file} cannot be written: {error.strerror}") from error


def _read(file: Path) -> tuple[Mapping[str, Any], ...]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        if content["format"] not in (1, _FORMAT):
            raise UsageError(f"{file} has format {content['format']}, and this version reads {_FORMAT}")
        rows = tuple(map(_of_format_1, content["rows"]) if content["format"] == 1 else content["rows"])
        for row in rows:
            _identity(row)
        return rows
    except (OSError, *MALFORMED) as error:
        raise _malformed(file, error) from error


def _malformed(file: Path | None, error: Exception) -> UsageError:
    return UsageError(f"{file} is not what tuner bench --out wrote: {reason(error)}; name another file")


def _of_format_1(row: Mapping[str, Any]) -> Mapping[str, Any]:
    rivals = {
        name: row[name] and {_FIELDS_OF_1.get(field, field): value for field, value in row[name].items()}
        for name in ("default", "vendor")
    }
    return {**row, **rivals}


def _identity(document: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the values in which two measurements of the same row agree."""
    made = document["measured_with"]
    versions = [made.get(name) for name in ("triton", "torch", "driver", "policy")]
    return (document["op"], document["problem"], document["device"], document["recorded"], *versions)
