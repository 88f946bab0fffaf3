"""Notes of the processes of one `tuner run`: which problems were looked up, and with which match.

All processes append to one file, which `TUNER_RUN_REPORT` names. Its first line is written by `tuner run`. A note is
one short write in append mode, so that notes of several processes do not mix, and none is lost if a process is killed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "TUNER_RUN_REPORT"
"""Environment variable that names the file; unset outside of `tuner run`."""
CAPTURED = "captured"
"""Kind of a note of a call that was captured. Other kinds are the matches of lookups."""
_LONGEST = 2000
"""Characters of a note, so that one write appends it whole."""


@dataclass(frozen=True)
class Note:
    """One lookup, or one captured call."""

    kind: str
    """`exact`, `stale`, `neighbour`, `none`, `tuned`, or `captured`."""
    op: str
    problem: str
    """Text of the problem."""


@dataclass(frozen=True)
class Report:
    """Content of the file."""

    store: str
    """Path or URL of the database, without a password."""
    is_option: bool
    """True if `--db` named it."""
    notes: frozenset[Note]


def note(kind: str, op: str, problem: str) -> None:
    """Add a note to the report of `tuner run`; do nothing in a process that it did not start. Never raises."""
    file = os.environ.get(VARIABLE)
    if not file:
        return
    line = json.dumps([kind, op, problem[:_LONGEST]]) + "\n"
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND)  # no new file once the report is printed and removed
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)
    except OSError:
        pass  # a full disk, or a process that outlives the script


def begin(file: Path, store: str, *, is_option: bool) -> None:
    """Write the first line."""
    file.write_text(json.dumps([store, is_option]) + "\n")


def read(file: Path) -> Report:
    """Return the content of the file. A note that cannot be read is left out."""
    first, *lines = file.read_text(errors="replace").splitlines()
    store, is_option = json.loads(first)
    return Report(str(store), bool(is_option), frozenset(_notes(lines)))


def _notes(lines: Iterable[str]) -> Iterable[Note]:
    for line in lines:
        try:
            kind, op, problem = json.loads(line)
        except (ValueError, TypeError):  # no JSON, or no three values
            continue
        yield Note(str(kind), str(op), str(problem))
