"""A heat map of problems over two dims: one cell for each pair of sizes, with the state of its problems."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from markupsafe import Markup

from tuner.api.pages.plots.colours import STEPS, ColourScale
from tuner.api.pages.plots.frame import WIDTHS, Heading, figure, nothing, text_width
from tuner.api.pages.plots.grid import Bin, Cell, Grid, State
from tuner.api.pages.plots.svg import MAX_TITLE, content, cut, element, words

CellLink = Callable[[Bin, Bin], str]
"""Returns the address of the list of problems in a column and a row."""


@dataclass(frozen=True)
class HeatMapSettings:
    """Sizes of a heat map, in px."""

    widest_cell: float = 64
    tallest_cell: float = 40
    smallest_cell: float = 11
    text_cell: float = 40
    """Cells of at least this width show their median."""
    count_cell: float = 34
    """Cells of at least this height also show their number of problems."""


SETTINGS = HeatMapSettings()


@dataclass(frozen=True)
class _Layout:
    width: int
    left: float
    top: float
    cell_width: float
    cell_height: float
    rows: int
    has_text: bool
    has_count: bool

    @property
    def bottom(self) -> float:
        return self.top + self.rows * self.cell_height

    def corner(self, column: int, row: int) -> tuple[float, float]:
        """Return the upper left corner of a cell; the smallest sizes stand at the lower left."""
        return self.left + column * self.cell_width, self.bottom - (row + 1) * self.cell_height


def heat_map(
    heading: Heading,
    cells: Grid,
    colours: ColourScale,
    cell_link: CellLink | None = None,
    settings: HeatMapSettings = SETTINGS,
) -> Markup:
    """Return the heat map of a grid.

    Args:
        colours: Scale of the cells' medians.
        cell_link: Address of a cell with several problems; a cell with one has the problem's address.
    """
    if not cells.cells:
        return nothing("No problem of this op is stored or was asked for on this card.")
    layout = _layout(cells, settings)
    marks = [_cell(cell, cells, colours, cell_link, layout) for cell in cells.cells]
    legend, height = _legend(cells, colours, layout)
    return figure(heading, "heat", (layout.width, height), [*_axes(cells, layout), *marks, *legend])


def _layout(cells: Grid, settings: HeatMapSettings) -> _Layout:
    columns, rows = len(cells.columns), len(cells.rows)
    left = max(text_width(str(row.low)) for row in cells.rows) + 14
    room = next((width for width in WIDTHS[1:] if (width - left - 8) / columns >= settings.text_cell + 6), WIDTHS[-1])
    cell_width = max(min((room - left - 8) / columns, settings.widest_cell), 8.0)
    tallest = settings.tallest_cell if cell_width >= settings.text_cell else cell_width
    cell_height = min(max(tallest, settings.smallest_cell), settings.tallest_cell)
    has_text = cell_width >= settings.text_cell
    return _Layout(
        room, left, 34, cell_width, cell_height, rows, has_text, has_text and cell_height >= settings.count_cell
    )


def _cell(cell: Cell, cells: Grid, colours: ColourScale, cell_link: CellLink | None, layout: _Layout) -> Markup:
    """Return one cell. Its parts are written as text: `element` takes four times as long for 5,000 cells."""
    x, y = layout.corner(cell.column, cell.row)
    gap = 1 if layout.cell_width < 16 else 2
    width, height = layout.cell_width - gap, layout.cell_height - gap
    href = cell.href
    if cell.count > 1:
        href = cell_link(cells.columns[cell.column], cells.rows[cell.row]) if cell_link else ""
    shown = "" if cell.median is None else colours.text(cell.median)
    colour = "none" if cell.median is None else colours.css(cell.median)
    parts = [
        f'<a class="cell {colour}" href="{content(href)}">' if href else f'<g class="cell {colour}">',
        f"<title>{content(_tooltip(cell, cells, shown))}</title>",
        f'<path d="M{x:.4g} {y:.5g}h{width:.4g}v{height:.4g}h-{width:.4g}z"/>',
        _glyph(cell.state, x, y, width, height, bool(shown)),
    ]
    if layout.has_text and shown:
        has_count = layout.has_count and cell.count > 1
        middle = x + width / 2
        parts.append(words(middle, y + height / 2 + (-2 if has_count else 4), shown))
        if has_count:
            parts.append(words(middle, y + height / 2 + 12, f"n={cell.count}", "count"))
    parts.append("</a>" if href else "</g>")
    return Markup("".join(parts))


def _tooltip(cell: Cell, cells: Grid, shown: str) -> str:
    if cell.count == 1:
        return f"{cut(cell.label, MAX_TITLE)}\n{shown or 'no value'}, {cell.state}"
    column, row = cells.columns[cell.column], cells.rows[cell.row]
    states = ", ".join(f"{count:,} {state}" for state, count in cell.states.items())
    value = f"median {shown}" if shown else "no value"
    of_row = f", {cells.y} {row.text}" if cells.y else ""
    return f"{cell.label}, {cells.x} {column.text}{of_row}\n{value}\n{states}"


def _glyph(state: State, x: float, y: float, width: float, height: float, has_value: bool) -> str:
    """Return the mark of a state, which does not depend on colours: in a corner, or in the middle of a small cell."""
    if state is State.TUNED:
        return ""
    if state is State.STALE:
        inner = f"M{x + 2:.4g} {y + 2:.5g}h{width - 4:.4g}v{height - 4:.4g}h{4 - width:.4g}z"
        return f'<path class="glyph stale" d="{inner}"/>'
    in_corner = width >= 24 and has_value
    cx, cy = (x + width - 7, y + 6.5) if in_corner else (x + width / 2, y + height / 2)
    path = {
        State.NEIGHBOUR: f"M{cx - 2.6:.4g} {cy:.5g}a2.6 2.6 0 1 0 5.2 0a2.6 2.6 0 1 0-5.2 0",
        State.DEFAULT: f"M{cx - 2.6:.4g} {cy:.5g}h5.2",
        State.MISSED: f"M{cx - 2.6:.4g} {cy - 2.6:.5g}l5.2 5.2m0-5.2l-5.2 5.2",
    }[state]
    return f'<path class="glyph" d="{path}"/>'


def _axes(cells: Grid, layout: _Layout) -> list[Markup]:
    parts = [words(0, 16, f"{cells.y} ↑", "axis")] if cells.y else []
    every = max(1, -(-14 // int(layout.cell_height)))
    for place, row in enumerate(cells.rows if cells.y else ()):
        if place % every == 0:
            y = layout.corner(0, place)[1] + layout.cell_height / 2 + 4
            parts.append(words(layout.left - 8, y, str(row.low), "tick", "end"))
    longest = max(text_width(str(column.low)) for column in cells.columns) + 10
    every = max(1, -(-int(longest) // int(layout.cell_width)))
    for place, column in enumerate(cells.columns):
        if place % every == 0:
            x = layout.corner(place, 0)[0] + layout.cell_width / 2
            parts.append(words(x, layout.bottom + 18, str(column.low), "tick", "middle"))
    end = layout.left + len(cells.columns) * layout.cell_width
    parts.append(words(max(end, layout.left + 30), layout.bottom + 38, f"{cells.x} →", "axis", "end"))
    return parts


def _legend(cells: Grid, colours: ColourScale, layout: _Layout) -> tuple[list[Markup], float]:
    """Return the legend below the axis, and the height of the plot with it."""
    x, y = layout.left, layout.bottom + 66
    parts = [words(x, y, colours.label, "tick")]
    y += 10
    swatch = min(28.0, (layout.width - layout.left - 16) / STEPS)
    for step in range(STEPS):
        place = {"x": x + step * swatch, "y": y, "width": swatch - 1, "height": 10}
        parts.append(element("rect", class_=f"{colours.kind[0]}{step}", **place))
    end = x + STEPS * swatch
    parts += [
        words(x, y + 26, colours.text(colours.low), "tick"),
        words(end, y + 26, colours.text(colours.high), "tick", "end"),
    ]
    if colours.kind == "diverging":
        parts.append(words((x + end) / 2, y + 26, "1x", "tick", "middle"))
    y += 52
    present = {state for cell in cells.cells for state in cell.states}
    for state in (state for state in State if state in present):
        if x + 24 + text_width(state) > layout.width and x > layout.left:
            x, y = layout.left, y + 22
        box = f"M{x:.1f} {y - 11:.1f}h14v14h-14z"
        glyph = Markup(_glyph(state, x, y - 11, 14, 14, False))
        parts.append(element("g", element("path", d=box), glyph, class_="cell key"))
        parts.append(words(x + 21, y, state, "tick"))
        x += 21 + text_width(state) + 20
    return parts, y + 10
