"""Tables and lines in the terminal's width, or complete if the output is not a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from typing import Any

from rich.console import Console
from rich.markup import escape as escape
from rich.table import Column, Table
from rich.text import Text

_MAX_WIDTH = 9999
"""Characters of the widest table that is measured."""
_HANGING = 2
"""Further indentation of the lines on which a long line goes on."""
_NARROWEST = 30
"""Room for the text of a long line, in characters, below which the line is printed as it is."""


class Output(Console):
    """Console of a command's output, whose lines fit the terminal."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(highlight=False, soft_wrap=True, emoji=False, **settings)

    def write(self, markup: str) -> None:
        """Print a line, as `print_lines` does."""
        print_lines([markup], self)


def print_lines(lines: Iterable[str], to: Console) -> None:
    """Print lines with markup. On a terminal a long line goes on below, indented, and breaks between words."""
    for part in (part for line in lines for part in line.split("\n")):
        text = Text.from_markup(part, emoji=False)
        indent = len(text.plain) - len(text.plain.lstrip(" "))
        room = to.width - indent - _HANGING
        if not to.is_terminal or text.cell_len <= to.width or room < _NARROWEST:
            to.print(text, soft_wrap=True)
            continue
        body = text[indent:]
        first = body.wrap(to, to.width - indent)[0]
        rest = body[len(body) - len(body.plain[len(first) :].lstrip(" ")) :]
        first.rstrip()
        to.print(Text(" " * indent).append_text(first))
        for more in rest.wrap(to, room):
            more.rstrip()
            to.print(Text(" " * (indent + _HANGING)).append_text(more))


def print_table(table: Table, console: Console, spare: Sequence[str] = (), title: str = "") -> None:
    """Print a table in which no cell is broken, if the terminal is wide enough for the columns without the titles.

    If the terminal is too narrow even without the spare columns, the titles of the rows stand on lines of their own.

    Args:
        spare: Headers of columns that are left out of a narrow terminal, in this order. A last line names them.
        title: Header of the column of the titles; empty for the first.
    """
    if not console.is_terminal:
        console.width = max(console.width, _width(table, console))
    least = table
    for head in spare:
        least = _without(head, least)
    is_tall = _width(least, console) > console.width
    if is_tall and title:
        table = _of_columns(sorted(table.columns, key=lambda column: column.header != title), table)
    without = []
    for head in spare:
        shown = _of_columns(table.columns[1:], table) if is_tall else table
        if _width(shown, console) > console.width and any(column.header == head for column in table.columns):
            table = _without(head, table)
            without.append(head)
    if is_tall:
        _print_tall(table, console)
    else:
        console.print(table, soft_wrap=False)
    if without:
        print_lines([f"[dim]narrow terminal, left out: {', '.join(without)}[/]"], console)


def _print_tall(table: Table, console: Console) -> None:
    """Print the title of each row, which is in the first column, above its other cells."""
    columns = [
        [Text.from_markup(str(cell), emoji=False) for cell in (column.header, *column.cells)]
        for column in table.columns
    ]
    widths = [max(cell.cell_len for cell in cells) for cells in columns]
    for column, cells, width in zip(table.columns, columns, widths, strict=True):
        for cell in cells:
            cell.align("right" if column.justify == "right" else "left", width)
    head, *rows = zip(*columns[1:], strict=True)
    lines = [
        "",
        f"  [bold]{_joined(head)}[/]",
        f"  {'─' * min(len(Text.from_markup(_joined(head))), console.width - 2)}",
    ]
    for name, row in zip(columns[0][1:], rows, strict=True):
        lines += [name.markup.rstrip(), f"  {_joined(row)}"]
    print_lines([*lines, ""], console)


def _joined(cells: Sequence[Text]) -> str:
    return "   ".join(cell.markup for cell in cells).rstrip()


def _without(head: str, table: Table) -> Table:
    return _of_columns([column for column in table.columns if column.header != head], table)


def _of_columns(columns: Iterable[Column], table: Table) -> Table:
    """Return a table of some columns of another, which keeps its own: a table numbers the columns that it is given."""
    made = Table(*map(copy, columns), box=table.box, pad_edge=table.pad_edge)
    made.rows = table.rows  # columns keep their cells, rows their styles
    return made


def _width(table: Table, console: Console) -> int:
    return console.measure(table, options=console.options.update(max_width=_MAX_WIDTH)).maximum
