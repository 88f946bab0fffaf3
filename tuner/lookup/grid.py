"""Search for the problems nearest to another one, by cells of log-scaled dims."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import nsmallest
from itertools import chain, islice, product
from math import floor, log2
from operator import sub

from tuner.kernels.spec import Problem


@dataclass(frozen=True)
class GridSettings:
    """Sizes of the grid and of its searches."""

    cells_per_octave: int = 4
    """Cells per octave of a dim."""
    probed_rings: int = 4
    """Rings of cells around a problem that are probed one by one before all cells are looked through."""
    far_problems: int = 2000
    """Largest number of problems compared that have a dim more than 2x off."""
    nearest: int = 3
    """Number of nearest problems returned."""


_SETTINGS = GridSettings()
_Cell = tuple[int, ...]
_Place = tuple[tuple[int, ...], str, str]
"""Sizes, dtype and text of a problem."""


class ProblemGrid:
    """Problems of one op by the cell that their dims are in. A grid never changes: `extended` returns a new one."""

    def __init__(self, settings: GridSettings = _SETTINGS) -> None:
        self._settings = settings
        self._cells: dict[_Cell, tuple[_Place, ...]] = {}

    def extended(self, problems: Iterable[Problem]) -> ProblemGrid:
        """Return this grid with further problems, none of which it has."""
        added: dict[_Cell, list[_Place]] = {}
        for problem in problems:
            added.setdefault(self._cell(problem), []).append((problem.sizes, problem.dtype, problem.text))
        grid = ProblemGrid(self._settings)
        grid._cells = self._cells.copy()
        for cell, places in added.items():
            grid._cells[cell] = (*self._cells.get(cell, ()), *places)
        return grid

    def nearest(self, problem: Problem) -> tuple[str, ...]:
        """Return the texts of the nearest problems other than this one, the nearest first."""
        wanted, sizes = self._settings.nearest, problem.sizes
        found, seen = list[tuple[float, str]](), 0
        for bound, places in self._rings(problem):
            if len(found) == wanted and (found[-1][0] < bound or seen > self._settings.far_problems):
                break
            others = list(islice(places, None if bound <= 2 else self._settings.far_problems))
            seen += len(others)
            found += [
                (_largest_ratio(sizes, size) + (dtype != problem.dtype), text)
                for size, dtype, text in others
                if text != problem.text
            ]
            found = nsmallest(wanted, found)
        return tuple(text for _, text in found)

    def around(self, problem: Problem) -> Iterator[tuple[float, Iterator[str]]]:
        """Yield texts of problems, ring by ring.

        Each ring comes with a lower bound, as a ratio of dims, on the distance of its problems and of all after it.
        """
        for bound, places in self._rings(problem):
            yield bound, (text for _, _, text in places)

    def _rings(self, problem: Problem) -> Iterator[tuple[float, Iterator[_Place]]]:
        middle = self._cell(problem)
        for ring in range(self._settings.probed_rings):
            if (2 * ring + 1) ** len(middle) > len(self._cells):
                break
            around = product(*(range(place - ring, place + ring + 1) for place in middle))
            yield self._ring(ring, [cell for cell in around if _rings_apart(cell, middle) == ring])
        else:
            ring = self._settings.probed_rings
        rest: dict[int, list[_Cell]] = {}
        for cell in self._cells:
            if len(cell) == len(middle):  # an older signature may have had other dims
                rest.setdefault(_rings_apart(cell, middle), []).append(cell)
        for further in sorted(rest):
            if further >= ring:
                yield self._ring(further, rest[further])

    def _ring(self, ring: int, cells: list[_Cell]) -> tuple[float, Iterator[_Place]]:
        bound = 2 ** ((ring - 1) / self._settings.cells_per_octave)
        return bound, chain.from_iterable(self._cells.get(cell, ()) for cell in cells)

    def _cell(self, problem: Problem) -> _Cell:
        return tuple(floor(self._settings.cells_per_octave * log2(size)) for size in problem.sizes)


def _rings_apart(cell: _Cell, other: _Cell) -> int:
    return max(map(abs, map(sub, cell, other)), default=0)


def _largest_ratio(sizes: tuple[int, ...], others: tuple[int, ...]) -> float:
    """Return the ratio of two problems' dims, of the dim in which it is largest."""
    return max([a / b if a > b else b / a for a, b in zip(sizes, others, strict=True)], default=1.0)
