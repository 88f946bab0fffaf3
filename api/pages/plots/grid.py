"""Problems in the cells of a grid over two dims, by their sizes or by powers of two."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite

from tuner.records import median


class State(StrEnum):
    """State of a problem on a card, the best first."""

    TUNED = "tuned"
    NEIGHBOUR = "neighbour"
    DEFAULT = "default"
    STALE = "stale"
    MISSED = "asked and missed"


_BY_CONCERN = tuple(reversed(State))


@dataclass(frozen=True)
class Covered:
    """One problem of a heat map."""

    x: int
    y: int
    """Sizes of the two dims."""
    value: float | None
    """Value that the colour shows; None if there is none, as for a missed problem."""
    state: State
    label: str
    """The problem, for the tooltip."""
    href: str = ""


@dataclass(frozen=True)
class Bin:
    """Sizes that share a column or a row, `low` to `high`."""

    low: int
    high: int

    @property
    def text(self) -> str:
        return str(self.low) if self.low == self.high else f"{self.low} to {self.high}"


@dataclass(frozen=True)
class Cell:
    """The problems of one cell."""

    column: int
    row: int
    count: int
    median: float | None
    """None if no problem has a value."""
    states: Mapping[State, int]
    label: str
    """The problem, or the number of problems."""
    href: str
    """Address of the problem; empty if there are several."""

    @property
    def state(self) -> State:
        """The state of most concern among the problems."""
        return next(state for state in _BY_CONCERN if state in self.states)


@dataclass(frozen=True)
class Grid:
    """Cells over two dims."""

    x: str
    y: str
    """Names of the dims; `y` is empty if there is one dim only, whose cells are in one row."""
    columns: Sequence[Bin]
    rows: Sequence[Bin]
    cells: Sequence[Cell]


def grid(x: str, y: str, problems: Iterable[Covered], most_distinct: int = 16) -> Grid:
    """Return the problems in cells.

    Args:
        x, y: Names of the dims.
        problems: In any order; sizes are at least 1.
        most_distinct: If a dim has more distinct sizes than this, its sizes are grouped by powers of two.
    """
    problems = list(problems)
    columns = _bins({problem.x for problem in problems}, most_distinct)
    rows = _bins({problem.y for problem in problems}, most_distinct)
    column_of, row_of = _places(columns), _places(rows)
    cells: defaultdict[tuple[int, int], list[Covered]] = defaultdict(list)
    for problem in problems:
        cells[_place(problem.x, column_of), _place(problem.y, row_of)].append(problem)
    return Grid(x, y, columns, rows, [_cell(*place, inside) for place, inside in sorted(cells.items())])


def _cell(column: int, row: int, problems: Sequence[Covered]) -> Cell:
    values = [problem.value for problem in problems if problem.value is not None and isfinite(problem.value)]
    is_one = len(problems) == 1
    return Cell(
        column,
        row,
        len(problems),
        median(values) if values else None,
        Counter(problem.state for problem in problems),
        problems[0].label if is_one else f"{len(problems):,} problems",
        problems[0].href if is_one else "",
    )


def _bins(sizes: set[int], most_distinct: int) -> list[Bin]:
    if len(sizes) <= most_distinct:
        return [Bin(size, size) for size in sorted(sizes)]
    powers = sorted({size.bit_length() - 1 for size in sizes})
    return [Bin(2**power, 2 ** (power + 1) - 1) for power in range(powers[0], powers[-1] + 1)]


def _places(bins: Sequence[Bin]) -> Mapping[int, int]:
    return {bin.low: place for place, bin in enumerate(bins)}


def _place(size: int, places: Mapping[int, int]) -> int:
    found = places.get(size)
    return places[2 ** (size.bit_length() - 1)] if found is None else found
