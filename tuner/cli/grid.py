"""Tables: whole where they are piped elsewhere, within the terminal where a reader is."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

_LONGEST = 999


def print_table(table: Table, console: Console, spare: Sequence[str] = ()) -> None:
    """Prints a table.

    Args:
        spare: heads of columns that a narrow terminal does without, the first of them first. It says so.
    """
    if not console.is_terminal:
        console.width = max(console.width, _wide(table, console))
    without = []
    for head in spare:
        if _wide(table, console) > console.width:
            table = _without(head, table)
            without.append(head)
    console.print(table, soft_wrap=False)
    if without:
        console.print(f"[dim]left out for want of room: {', '.join(without)}[/]")


def _without(head: str, table: Table) -> Table:
    narrower = Table(*(each for each in table.columns if each.header != head), box=table.box, pad_edge=table.pad_edge)
    narrower.rows = table.rows  # a column keeps its cells, and a row how it looks
    return narrower


def _wide(table: Table, console: Console) -> int:
    return console.measure(table, options=console.options.update(max_width=_LONGEST)).maximum
