"""The file that `tuner bench --out` keeps rows in, and goes on from."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner.errors import UsageError, reason
from tuner.tuning.bench import Row, Subject, still_stands

_FORMAT = 1


class Kept:
    """Rows by problem, card and versions: suites and cards of any number share a file. Without one, nothing is kept.

    Raises:
        UsageError: the file is none of ours.
    """

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._documents: tuple[Mapping[str, Any], ...] = ()
        if file is not None and file.exists():
            self._documents = _read(file)

    def row(self, subject: Subject) -> Row | None:
        """The row of a subject, if it says what measuring it again would."""
        for document in self._documents:
            if (document["op"], document["problem"]) == (subject.problem.op, subject.problem.values):
                row = Row.from_json(subject.problem, document)
                if still_stands(row, subject):
                    return row
        return None

    def keep(self, row: Row) -> None:
        """Writes a row, in place of what it replaces.

        Raises:
            UsageError: the file cannot be written.
        """
        if self._file is None:
            return
        document = row.as_json()
        others = [other for other in self._documents if _about(other) != _about(document)]
        self._documents = (*others, document)
        beside = self._file.with_name(f"{self._file.name}.part")
        try:
            beside.write_text(json.dumps({"format": _FORMAT, "rows": self._documents}, indent=1), encoding="utf-8")
            os.replace(beside, self._file)  # whoever ends us now leaves a whole file
        except OSError as error:
            raise UsageError(f"{self._file} cannot be written: {error.strerror}") from error


def _read(file: Path) -> tuple[Mapping[str, Any], ...]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        if content["format"] != _FORMAT:
            raise UsageError(f"{file} has format {content['format']}, and this version reads {_FORMAT}")
        rows = tuple(content["rows"])
        for row in rows:
            _about(row)
        return rows
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{file} is not what tuner bench --out wrote: {reason(error)}") from error


def _about(document: Mapping[str, Any]) -> tuple[Any, ...]:
    """Two rows that agree in this are one and the same, measured twice."""
    made = document["measured_with"]
    versions = [made.get(name) for name in ("triton", "torch", "driver", "policy")]
    return (document["op"], document["problem"], document["device"], document["recorded"], *versions)
