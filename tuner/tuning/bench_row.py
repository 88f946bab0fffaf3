"""The rows of `tuner bench`, and their means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import geometric_mean
from typing import Any

from tuner.kernels.spec import Problem, Value
from tuner.records import VENDOR_NAME, Interval
from tuner.report.vendor import vendor_label

BEST_VENDOR = "best vendor"
"""Name of the vendors of several rows, if rows have several of which the fastest counts."""
BARS = (1.0, 0.95)
"""Speed-ups over the vendor below which a summary counts rows."""


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

    def as_json(self) -> dict[str, Any]:
        """Return plain values, from which `from_json` makes the row."""
        derived = {"tflops": self.tflops, "gb_per_s": self.gb_per_s, "roofline_share": self.share}
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


def vendors_of(rows: Sequence[Row]) -> list[str]:
    """Return the names of all vendors beside these rows, in the order of the first row that has each."""
    return list(dict.fromkeys(name for row in rows for name in row.vendors))


def vendor_of(rows: Sequence[Row]) -> str:
    """Return the name of the vendor beside these rows: `best vendor` if some row has several."""
    if any(len(row.vendors) > 1 for row in rows):
        return BEST_VENDOR
    return vendor_label(row.vendor_name for row in rows if row.vendor is not None)


@dataclass(frozen=True)
class Summary:
    """Means and counts over the rows of a suite; None if no row has the value."""

    rows: int
    failed: int
    untuned: int
    speedup: float | None
    """Geometric mean of the speed-ups over the default."""
    vendor_speedup: float | None
    """Geometric mean of the speed-ups over the fastest vendor of each row."""
    vendors: Mapping[str, float]
    """Geometric mean of the speed-ups over each vendor, by name."""
    worst: Row | None
    """Row of the least speed-up over the vendor."""
    below: Mapping[float, int]
    """Number of rows with a speed-up over the vendor below each bar."""
    share: float | None
    """Geometric mean of the shares of the roofline."""

    def as_json(self) -> dict[str, Any]:
        """Return plain values, with the problem of the worst row."""
        return {
            "rows": self.rows,
            "failed": self.failed,
            "untuned": self.untuned,
            "speedup": self.speedup,
            "vendor_speedup": self.vendor_speedup,
            "vendors": dict(self.vendors),
            "roofline_share": self.share,
            "worst": None if self.worst is None else self.worst.problem.text,
            "below": {str(bar): count for bar, count in self.below.items()},
        }


def summary(rows: Sequence[Row]) -> Summary:
    """Return means and counts over the rows."""
    against = [(row.vendor.speedup, row) for row in rows if row.ok and row.vendor is not None]
    return Summary(
        rows=len(rows),
        failed=sum(not row.ok for row in rows),
        untuned=sum(row.kind == "untuned" for row in rows),
        speedup=_mean([row.default.speedup for row in rows if row.default is not None]),
        vendor_speedup=_mean([speedup for speedup, _ in against]),
        vendors={
            name: geometric_mean(row.vendors[name].speedup for row in rows if name in row.vendors)
            for name in vendors_of(rows)
        },
        worst=min(against, key=lambda pair: pair[0], default=(0.0, None))[1],
        below={bar: sum(speedup < bar for speedup, _ in against) for bar in BARS},
        share=_mean([row.share for row in rows if row.share is not None]),
    )


def by_device(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the rows of each card, by the ids of the cards."""
    return {device: [row for row in rows if row.device == device] for device in sorted({row.device for row in rows})}


def document(suite: str, rows: Sequence[Row]) -> dict[str, Any]:
    """Return the document of `tuner bench --json`; with several cards, `devices` has a summary of each."""
    devices = {device: summary(of_it).as_json() for device, of_it in by_device(rows).items()}
    return {
        "suite": suite,
        "summary": summary(rows).as_json(),
        **({"devices": devices} if len(devices) > 1 else {}),
        "rows": [row.as_json() for row in rows],
    }


def _mean(values: Sequence[float]) -> float | None:
    return geometric_mean(values) if values else None
