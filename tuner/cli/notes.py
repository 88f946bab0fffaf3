"""Notes and progress on stderr, for every command that measures."""

from __future__ import annotations

from rich.markup import escape

from tuner.cli.grid import print_lines
from tuner.tuning.progress import Progress


class TerminalProgress(Progress):
    """Shows a bar on a terminal; notes are lines of stderr, on a terminal or not."""

    def print_line(self, line: str, level: int) -> None:
        print_lines(map(escape, line.splitlines()), self._console)
