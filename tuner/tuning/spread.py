"""Speed-ups of several problems: their spread, of all and of the ranges of an op's sizes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from statistics import geometric_mean, quantiles
from typing import Any, Protocol, TypeVar

from tuner.kernels.spec import Dim, Problem
from tuner.suites.suite import Suite

BARS = (1.0, 0.95)
"""Speed-ups below which a summary counts problems."""


class ProblemRow(Protocol):
    """A row of a table: the outcome of a problem on a card."""

    @property
    def problem(self) -> Problem: ...

    @property
    def device(self) -> str:
        """Id of the card; empty if the problem has no answer."""
        ...


RowT = TypeVar("RowT", bound=ProblemRow)


@dataclass(frozen=True)
class Spread:
    """Geometric mean, 10th percentile and least of the speed-ups of several problems."""

    problems: int
    mean: float
    tenth: float
    least: float
    least_problem: Problem
    below: Mapping[float, int]
    """Number of problems with a speed-up below each bar."""

    @staticmethod
    def of(speedups: Iterable[tuple[float | None, Problem]]) -> Spread | None:
        """Return the spread of the speed-ups that are known; None if there are none."""
        known = sorted(((speed, problem) for speed, problem in speedups if speed is not None), key=itemgetter(0))
        if not known:
            return None
        values = [speed for speed, _ in known]
        tenth = quantiles(values, n=10, method="inclusive")[0] if len(values) > 1 else values[0]
        below = {bar: sum(speed < bar for speed in values) for bar in BARS}
        return Spread(len(values), geometric_mean(values), tenth, *known[0], below)

    def as_json(self) -> dict[str, Any]:
        """Return plain values, with the problem of the least speed-up."""
        return {
            "problems": self.problems,
            "mean": self.mean,
            "tenth": self.tenth,
            "least": self.least,
            "least_problem": self.least_problem.text,
            "below": {str(bar): count for bar, count in self.below.items()},
        }


def by_device(rows: Sequence[RowT]) -> dict[str, list[RowT]]:
    """Return the rows of each card, by the ids of the cards."""
    return {device: [row for row in rows if row.device == device] for device in sorted({row.device for row in rows})}


def by_op(rows: Sequence[RowT]) -> dict[str, list[RowT]]:
    """Return the rows of each op, in the order of the first row of each."""
    ops = dict.fromkeys(row.problem.op for row in rows)
    return {op: [row for row in rows if row.problem.op == op] for op in ops}


def by_range(rows: Sequence[RowT], dim: Dim | None) -> dict[str, list[RowT]]:
    """Return the rows of each range of a dim, the smallest sizes first; nothing if they are in a single one."""
    if dim is None:
        return {}
    ranges: dict[str, list[RowT]] = {}
    for size, row in sorted(((row.problem[dim.name], row) for row in rows), key=lambda pair: pair[0]):
        ranges.setdefault(dim.range_of(size), []).append(row)
    return ranges if len(ranges) > 1 else {}


def groups(rows: Sequence[RowT], ranged: Mapping[str, Dim]) -> Iterator[tuple[str, Sequence[RowT]]]:
    """Yield the rows of each op under its name, those of each of its ranges, and all if there are several ops."""
    ops = by_op(rows)
    for op, of_it in ops.items():
        yield op, of_it
        yield from ((f"{op}, {name}", in_it) for name, in_it in by_range(of_it, ranged.get(op)).items())
    if len(ops) > 1:
        yield "all", rows


def ranged_dims(suite: Suite) -> dict[str, Dim]:
    """Return the dim of each op that has ranges."""
    signatures = {entry.problem.op: entry.signature for entry in suite.entries}
    return {op: dim for op, signature in signatures.items() for dim in reversed(signature.dims) if dim.ranges}
