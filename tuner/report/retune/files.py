"""The files of a retune's report in one folder: Markdown, JSON, JUnit XML, and a plot of each problem that moved."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from tuner.errors import UsageError
from tuner.records.retune import Finding
from tuner.report.retune.junit import junit
from tuner.report.retune.markdown import MarkdownSettings, markdown
from tuner.report.retune.report import RetuneReport
from tuner.report.retune.svg import plot
from tuner.report.retune.text import done_text
from tuner.report.text import short

PLOTS = "plots"
"""Folder of the plots within the report's."""
SHORT = MarkdownSettings(most_bytes=60_000)
"""Limits of the short Markdown: the text of an issue or a pull request on GitHub has at most 65,536 characters."""
_LONGEST = 80
"""Characters of a problem in a file's name."""


def write_files(report: RetuneReport, folder: Path) -> list[Path]:
    """Write `retune.json`, `retune.md`, `retune-short.md`, `retune.xml` and `plots/*.svg`, and return their paths.

    Files are replaced.

    Raises:
        UsageError: a file cannot be written.
    """
    written = []
    for name, text in _files(report):
        file = folder / name
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        except OSError as error:
            raise UsageError(
                f"--report names a folder that can be written, and {file} cannot: {error.strerror}"
            ) from error
        written.append(file)
    return written


def _files(report: RetuneReport) -> Iterator[tuple[str, str]]:
    yield "retune.json", json.dumps(report.as_json(), indent=2) + "\n"
    yield "retune.md", markdown(report)
    yield "retune-short.md", markdown(report, SHORT)
    yield "retune.xml", junit(report)
    for finding in report.moved:
        points = report.points(finding)
        if len(points) > 1:
            note = f"{report.retune.device}, {finding.cause}; {done_text(finding)}"
            yield f"{PLOTS}/{_name(report, finding)}.svg", plot(short(finding.problem), note, points)


def _name(report: RetuneReport, finding: Finding) -> str:
    """Return the ids of the retune and the answer, and the problem, as a file's name."""
    problem = re.sub(r"[^A-Za-z0-9.]+", "-", short(finding.problem))[:_LONGEST].strip("-.")
    return f"{report.retune.id}-{finding.answer_id}-{problem}"
