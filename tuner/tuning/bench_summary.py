"""Means over the rows of `tuner bench`: the untuned default and the tuned answer, each beside the vendors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from types import MappingProxyType
from typing import Any

from tuner.kernels.spec import Dim
from tuner.tuning.bench_row import Row, several_vendors, vendor_of
from tuner.tuning.spread import Spread, by_device, by_op, by_range


@dataclass(frozen=True)
class SummarySettings:
    """Extent of the list of the worst untuned problems."""

    fewest: int = 3
    """Number of problems that are listed however fast they are."""
    most: int = 10
    """Number of problems that are listed at most, if they are slower than the vendor."""


SETTINGS = SummarySettings()


@dataclass(frozen=True)
class Summary:
    """Means and counts over rows."""

    rows: int
    failed: int
    without_answer: int
    """Number of problems that were not searched, so that the default is served."""
    untuned: Mapping[str, Spread]
    """Speed-ups of the default over each vendor by name; over the fastest one of each problem first."""
    tuned: Mapping[str, Spread]
    """Speed-ups of the answers that searches found, likewise."""
    of_tuned: Spread | None
    """Speeds of the default relative to the answers that searches found; None if none were."""
    share: float | None
    """Geometric mean of the served configs' shares of the roofline; None if no row has one."""
    worst_untuned: tuple[Row, ...]
    """Problems of the default's least speed-ups over the fastest vendor, the least first."""

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        sides = {"untuned": self.untuned, "tuned": self.tuned}
        return {
            "rows": self.rows,
            "failed": self.failed,
            "without_answer": self.without_answer,
            **{side: {name: each.as_json() for name, each in spreads.items()} for side, spreads in sides.items()},
            "untuned_of_tuned": None if self.of_tuned is None else self.of_tuned.as_json(),
            "roofline_share": self.share,
            "worst_untuned": [
                {"problem": row.problem.text, "untuned": row.untuned(), "tuned": row.tuned()}
                for row in self.worst_untuned
            ],
        }


def summary(rows: Sequence[Row], settings: SummarySettings = SETTINGS) -> Summary:
    """Return means and counts over the rows."""
    vendors: dict[str, str | None] = {vendor_of(rows): None, **{name: name for name in several_vendors(rows)}}

    def over_each(side: Callable[[Row, str | None], float | None]) -> dict[str, Spread]:
        spreads = {label: Spread.of((side(row, name), row.problem) for row in rows) for label, name in vendors.items()}
        return {label: spread for label, spread in spreads.items() if spread is not None}

    shares = [row.share for row in rows if row.share is not None]
    slowest = sorted((speedup, place) for place, row in enumerate(rows) if (speedup := row.untuned()) is not None)
    listed = [place for nth, (speedup, place) in enumerate(slowest) if nth < settings.fewest or speedup < 1]
    return Summary(
        rows=len(rows),
        failed=sum(not row.ok for row in rows),
        without_answer=sum(row.kind == "untuned" for row in rows),
        untuned=over_each(Row.untuned),
        tuned=over_each(Row.tuned),
        of_tuned=Spread.of((1 / row.default.speedup, row.problem) for row in rows if row.is_searched and row.default),
        share=geometric_mean(shares) if shares else None,
        worst_untuned=tuple(rows[place] for place in listed[: settings.most]),
    )


def document(suite: str, rows: Sequence[Row], ranged: Mapping[str, Dim] = MappingProxyType({})) -> dict[str, Any]:
    """Return the document of `tuner bench --json`.

    `devices` and `ops` have a summary of each if there are several; `ranges` those of an op's ranges.

    Args:
        ranged: the dim of each op by whose ranges its rows are grouped.
    """
    devices = {device: _with_ops(of_it, ranged) for device, of_it in by_device(rows).items()}
    return {
        "suite": suite,
        "summary": _with_ops(rows, ranged),
        **({"devices": devices} if len(devices) > 1 else {}),
        "rows": [row.as_json() for row in rows],
    }


def _with_ops(rows: Sequence[Row], ranged: Mapping[str, Dim]) -> dict[str, Any]:
    ops = {op: _with_ranges(of_it, ranged.get(op)) for op, of_it in by_op(rows).items()}
    if len(ops) == 1:
        return next(iter(ops.values()))
    return {**summary(rows).as_json(), **({"ops": ops} if ops else {})}


def _with_ranges(rows: Sequence[Row], dim: Dim | None) -> dict[str, Any]:
    ranges = {name: summary(of_it).as_json() for name, of_it in by_range(rows, dim).items()}
    return {**summary(rows).as_json(), **({"ranges": ranges} if ranges else {})}
