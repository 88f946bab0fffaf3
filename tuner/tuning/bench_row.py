"""The rows of `tuner bench`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tuner.kernels.spec import Problem, Value
from tuner.records import VENDOR_NAME, Interval
from tuner.report.vendor import vendor_label

BEST_VENDOR = "best vendor"
"""Name of the vendors of several rows, if rows have several of which the fastest counts."""


@dataclass(frozen=True)
class Rival:
    """Another contender: its latency in us, and the served config's speed-up over it; above 1, that is faster."""

    latency_us: float
    speedup: float
    speedup_interval: Interval


@dataclass(frozen=True)
class Roof:
    """The roofline of a problem: the card's copy bandwidth, and its matmul rate if that was measured."""

    floor_us: float
    """Least time of the problem, in us."""
    gb_per_s: float
    tflops: float | None


@dataclass(frozen=True)
class Row:
    """The outcome of one problem. If it failed, `error` has the reason, and there are no latencies."""

    problem: Problem
    device: str
    kind: str
    """`tuned`, `default` or `untuned`; `failed`."""
    recorded: str | None = None
    """Name of the recorded space it was replayed from."""
    measured_with: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, Value] | None = None
    latency_us: float = 0.0
    interval_us: Interval = (0.0, 0.0)
    default: Rival | None = None
    default_failure: str = ""
    """Outcome and text of the default's failure; empty if it runs."""
    vendor: Rival | None = None
    """The fastest of `vendors`; None if none ran."""
    vendor_name: str = VENDOR_NAME
    """Name of the fastest."""
    vendors: Mapping[str, Rival] = field(default_factory=dict)
    """All vendors that were timed, by name."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Vendors that were not timed, by name, each with the reason."""
    libraries: Mapping[str, str] = field(default_factory=dict)
    """Installed libraries of the vendors, with versions; no item for a vendor whose library was not installed."""
    flops: int = 0
    bytes: int = 0
    roof: Roof | None = None
    rounds: int = 0
    marks: tuple[str, ...] = ()
    error: str = ""
    seconds: float = 0.0
    """Wall time of the problem, with its search if there was one."""

    @property
    def ok(self) -> bool:
        return self.kind != "failed"

    @property
    def tflops(self) -> float | None:
        """TFLOP/s; None for a kernel that only moves data."""
        return self.flops / self.latency_us / 1e6 if self.ok and self.flops else None

    @property
    def gb_per_s(self) -> float:
        """Least bytes moved, in GB/s."""
        return self.bytes / self.latency_us / 1e3 if self.ok else 0.0

    @property
    def share(self) -> float | None:
        """Share of the roofline; 1 is on it."""
        return None if self.roof is None or not self.ok else self.roof.floor_us / self.latency_us

    @property
    def is_searched(self) -> bool:
        """Return whether a search found the served config, which may be the default."""
        return self.kind in ("tuned", "default")

    def untuned(self, vendor: str | None = None) -> float | None:
        """Return the default's speed-up over a vendor; None if one of them did not run.

        Args:
            vendor: its name; None is the fastest.
        """
        over = self.over(vendor)
        return None if over is None or self.default is None else over / self.default.speedup

    def tuned(self, vendor: str | None = None) -> float | None:
        """Return the answer's speed-up over a vendor, as `untuned`; None too if no search found the answer."""
        return self.over(vendor) if self.is_searched else None

    def over(self, vendor: str | None = None) -> float | None:
        """Return the speed-up of the served config over a vendor, as `untuned`."""
        rival = self.vendor if vendor is None else self.vendors.get(vendor)
        return None if rival is None or not self.ok else rival.speedup

    def as_json(self) -> dict[str, Any]:
        """Return plain values, from which `from_json` makes the row."""
        derived = {
            "tflops": self.tflops,
            "gb_per_s": self.gb_per_s,
            "roofline_share": self.share,
            "untuned_speedup": self.untuned(),
            "tuned_speedup": self.tuned(),
        }
        return {"op": self.problem.op, **asdict(self), "problem": self.problem.values, **derived}

    @staticmethod
    def from_json(problem: Problem, document: Mapping[str, Any]) -> Row:
        """Return the row of a problem that `as_json` wrote."""
        known = {name: value for name, value in document.items() if name in Row.__dataclass_fields__}
        rivals = {name: _rival(document[name]) for name in ("default", "vendor")}
        timed = document.get("vendors", {document.get("vendor_name", VENDOR_NAME): document["vendor"]})
        vendors = {name: rival for name, each in timed.items() if (rival := _rival(each)) is not None}
        tuples = {name: tuple(document[name]) for name in ("interval_us", "marks")}
        roof = document["roof"] and Roof(**document["roof"])
        return Row(**{**known, **rivals, **tuples, "vendors": vendors, "roof": roof, "problem": problem})


def _rival(document: Mapping[str, Any] | None) -> Rival | None:
    if not document:
        return None
    return Rival(**{**document, "speedup_interval": tuple(document["speedup_interval"])})


def several_vendors(rows: Sequence[Row]) -> list[str]:
    """Return the names of all vendors beside these rows, in the order of the first row that has each.

    Empty if no row has several: then a row has one, which need not be that of another row.
    """
    if all(len(row.vendors) < 2 for row in rows):
        return []
    return list(dict.fromkeys(name for row in rows for name in row.vendors))


def vendor_of(rows: Sequence[Row]) -> str:
    """Return the name of the vendor beside these rows: `best vendor` if some row has several."""
    if several_vendors(rows):
        return BEST_VENDOR
    return vendor_label(row.vendor_name for row in rows if row.vendor is not None)
