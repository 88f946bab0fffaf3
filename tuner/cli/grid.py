"""Tables in the terminal's width, or complete if the output is not a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

_MAX_WIDTH = 999
"""Characters of the widest table that is measured."""


def print_table(table: Table, console: Console, spare: Sequence[str] = ()) -> None:
    """Print a table.

    Args:
        spare: Headers of columns that are left out of a narrow terminal, in this order. A last line names them.
    """
    if not console.is_terminal:
        console.width = max(console.width, _width(table, console))
    without = []
    for head in spare:
        if _width(table, console) > console.width:
            table = _without(head, table)
            without.append(head)
    console.print(table, soft_wrap=False)
    if without:
        console.print(f"[dim]narrow terminal, left out: {', '.join(without)}[/]")


def _without(head: str, table: Table) -> Table:
    narrower = Table(*(each for each in table.columns if each.header != head), box=table.box, pad_edge=table.pad_edge)
    narrower.rows = table.rows  # columns keep their cells, rows their styles
    return narrower


def _width(table: Table, console: Console) -> int:
    return console.measure(table, options=console.options.update(max_width=_MAX_WIDTH)).maximum
