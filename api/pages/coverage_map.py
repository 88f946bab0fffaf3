"""The map of the coverage page: its axes, its cells and where they lead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from tuner.api.pages.answer_facts import address_of
from tuner.api.pages.covered import Colour, Row, Wanted
from tuner.api.pages.links import Links
from tuner.api.pages.plots import Bin, Cell, Covered, Grid, Heading, grid, heat_map
from tuner.api.pages.site import Query
from tuner.api.pages.tables import in_table
from tuner.report.text import short


@dataclass(frozen=True)
class MapSettings:
    """Limits of the map."""

    grouped: int = 16
    """Number of distinct sizes of a dim above which they are grouped by powers of two."""
    each: int = 100
    """The same limit if each size is to have its own column or row."""


SETTINGS = MapSettings()


@dataclass(frozen=True)
class Choice:
    """The op, the card and the axes that the page shows."""

    op: str
    device: str
    x: str | None
    y: str | None
    colour: Colour
    wanted: Wanted
    shown: Wanted
    """The filters of the table: those of the map, and the ranges of the cell that was chosen."""


def cells_of(rows: Sequence[Row], choice: Choice, most_distinct: int) -> tuple[Grid, Mapping[str, Row]]:
    """Return the cells of the rows that have both dims, and the rows by the labels of their cells."""
    x, y, value = choice.x, choice.y, choice.colour.value
    by_text, covered = dict[str, Row](), list[Covered]()
    for row in rows:
        sizes = dict(row.problem.dims)
        if x is not None and x in sizes and (y is None or y in sizes):
            text = row.problem.text
            by_text[text] = row
            covered.append(Covered(sizes[x], 1 if y is None else sizes[y], value(row), row.state, text))
    return grid(x or "", y or "", covered, most_distinct), by_text


def coverage_map(rows: Sequence[Row], choice: Choice, query: Query, links: Links) -> Markup | None:
    """Return the heat map of rows; None if their problems have no dims.

    A cell with one problem leads to its page, one with several to the page with the table of them.
    """
    if choice.x is None:
        return None
    most = SETTINGS.each if query.choice("sizes", ("grouped", "each")) == "each" else SETTINGS.grouped
    cells, by_text = cells_of(rows, choice, most)

    def named(cell: Cell) -> Cell:
        """Return a cell of one problem with its short text and its address, which only such a cell needs."""
        if cell.count > 1:
            return cell
        problem = by_text[cell.label].problem
        return replace(cell, label=short(problem), href=links.to("problem", **address_of(problem, choice.device)))

    def to_list(column: Bin, row: Bin) -> str:
        ranges = {"x_range": f"{column.low}-{column.high}"}
        ranges |= {} if choice.y is None else {"y_range": f"{row.low}-{row.high}"}
        kept = {
            name: value for name, value in query.given.items() if name not in ("sort", "after", "x_range", "y_range")
        }
        return in_table(links.to("coverage", **{**kept, "op": choice.op, "device": choice.device, **ranges}))

    shown = replace(cells, cells=[named(cell) for cell in cells.cells])
    scale = choice.colour.scale([cell.median for cell in cells.cells if cell.median is not None])
    over = f"{choice.x} and {choice.y}" if choice.y else choice.x
    about = f"Problems of {choice.op} on {choice.device} over {over}, by state, coloured by {scale.label}."
    return heat_map(Heading("coverage", f"Coverage of {choice.op}", about), shown, scale, to_list)
