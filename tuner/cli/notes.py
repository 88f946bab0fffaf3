"""Notes and progress on stderr, for every command that measures."""

from __future__ import annotations

import click

from tuner.tuning.progress import Progress


class TerminalProgress(Progress):
    """Shows a bar on a terminal; notes are lines of stderr, on a terminal or not."""

    def print_line(self, line: str, level: int) -> None:
        if self.is_visible:
            super().print_line(line, level)
        else:
            click.echo(line, err=True)
