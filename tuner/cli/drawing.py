"""`--plot FILE.html`: the option, the check for plotly, and the file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from tuner.cli.text import say
from tuner.errors import UsageError


def plot_option(help: str = "Draw the result as an HTML page that needs no network.") -> click.Option:
    """Return the option of a command that draws a page."""
    return click.Option(
        ["--plot"], type=click.Path(path_type=Path, dir_okay=False), metavar="FILE.html", help=help
    )  # fmt: skip


@contextmanager
def needs_plotly() -> Iterator[None]:
    """Turn a failed import of plotly within the block into a usage error.

    Raises:
        UsageError: plotly is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise UsageError(f"--plot needs {error.name}; pip install 'triton-tuner[plot]'") from error


def write_page(file: Path, text: str) -> None:
    """Write a page, and print its path to stderr.

    Raises:
        UsageError: the file cannot be written.
    """
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"the page {file} cannot be written: {error.strerror}") from error
    say(f"Page written to {file}.")
