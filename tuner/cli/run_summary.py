"""The line that `tuner run` ends with: what was served, what was captured, and the command that tunes it."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from pathlib import Path

from tuner.client import run_report
from tuner.client.run_report import CAPTURED, Note, Report
from tuner.triton.mode import CAPTURE, VARIABLE

_MATCHES = ("exact", "tuned", "neighbour", "stale", "none")
"""Kinds of lookups, the best first. If processes differ on a problem, the worst of theirs counts."""
_SHOWN = {"none": "without an answer"}
"""Texts of kinds that are not shown by their names."""


def summary(file: str | os.PathLike[str]) -> str:
    """Return the line for a report."""
    report = run_report.read(Path(file))
    is_capturing = os.environ.get(VARIABLE) == CAPTURE
    captured = {(note.op, note.problem) for note in report.notes if note.kind == CAPTURED}
    found = {(note.op, note.problem): note.kind for note in sorted(report.notes, key=_rank) if note.kind != CAPTURED}
    counts = Counter(found.values())
    problems = {*found, *captured}
    kernels = len({op for op, _ in problems})
    line = f"{_count(len(problems), 'problem')} of {_count(kernels, 'kernel')}"
    if counts:
        ranked = sorted(counts, key=lambda kind: _MATCHES.index(kind) if kind in _MATCHES else len(_MATCHES))
        line += ": " + ", ".join(f"{counts[kind]:,} {_SHOWN.get(kind, kind)}" for kind in ranked)
    if captured:
        line += f"; {len(captured):,} captured in {report.store}; {_search(report)} tunes them"
    elif counts["none"] and not is_capturing:
        line += "; tuner run --mode capture captures those without an answer"
    return line


def _rank(note: Note) -> int:
    return _MATCHES.index(note.kind) if note.kind in _MATCHES else -1


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _search(report: Report) -> str:
    command = "tuner search --captured"
    return f"{command} --db {shlex.quote(report.store)}" if report.is_option else command
