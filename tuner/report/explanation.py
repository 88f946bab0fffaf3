"""The explanation of a stored answer, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tuner.kernels.spec import Config
from tuner.records import Answer, Interval, Measurement, StoredRun
from tuner.report.occupancy import Occupancy


@dataclass(frozen=True)
class Contender:
    """A contender of the interleaved comparison, and the answer's speed-up over it, within rounds."""

    name: str
    """A config's canonical text, or `VENDOR`."""
    roles: tuple[str, ...]
    """Those of `answer`, `default`, `tie` and `vendor` that apply, else `beaten`.

    Ties are relative to the fastest config, which need not be the answer.
    """
    latency_us: float
    interval_us: Interval
    speedup: float
    """The contender's latency over the answer's; above 1, the answer is faster."""
    speedup_interval: Interval
    measurement: Measurement | None = None
    """Measurement of the config, with the compiler's report; None for the vendor."""
    occupancy: Occupancy | None = None


@dataclass(frozen=True)
class Failure:
    """Number of configs that failed in one way, and an example."""

    outcome: str
    count: int
    stage: str
    example: str
    """Error of the first of them."""
    config: Config
    """The first of them."""

    def as_json(self) -> dict[str, Any]:
        """Return the fields that `tuner show --json` and `tuner explain --json` print."""
        return {
            "outcome": self.outcome,
            "count": self.count,
            "stage": self.stage,
            "example": self.example,
            "config": dict(self.config),
        }


@dataclass(frozen=True)
class Candidates:
    """Counts of configs by their outcome in the search: `space + outside` is the sum of all others."""

    space: int | None
    """Number of feasible configs; None if the run did not store it."""
    comparison: int
    """Configs in the interleaved comparison."""
    slower: int
    """Configs that were measured and are not contenders."""
    beaten: int
    """Configs whose measurement ended after a few launches, since they were far slower than the best."""
    failures: tuple[Failure, ...]
    not_tried: int | None
    """None if the number of feasible configs is unknown."""
    outside: int
    """Counted configs of earlier runs that are not in this run's space."""

    @property
    def failed(self) -> int:
        """Number of configs that failed."""
        return sum(failure.count for failure in self.failures)

    def as_json(self) -> dict[str, Any]:
        """Return the fields that `tuner explain --json` prints."""
        return {**vars(self), "failures": [failure.as_json() for failure in self.failures], "failed": self.failed}


@dataclass(frozen=True)
class Roofline:
    """Lower limit of the problem's latency on the card, by its roofline limits."""

    floor_us: float
    """The lower limit, in us."""
    share: float
    """Lower limit over the answer's latency: 1 is on the roofline."""
    bound: str
    """`compute` or `memory`, whichever limit is higher."""
    missing: str = ""
    """The limit that was not measured, so that `floor_us` may be too low; else empty."""


@dataclass(frozen=True)
class Outlook:
    """Verdict of the kernel's estimate on the answer, corrected by what was measured."""

    best_us: float
    """Best latency that it holds possible, in us: the answer's, or that of an untried config."""
    config: Config | None
    """The untried config; None if none is expected to be faster."""
    share: float
    """Best possible latency over the answer's: at 1, nothing faster is expected."""
    parts: Mapping[str, float]
    """Estimated time of what the answer waits for, in us. They overlap."""
    limit: str
    """Name of the longest part, which holds the answer back; `power` for products at the power cap."""


@dataclass(frozen=True)
class CardRange:
    """State of the card over the rounds. None is unknown."""

    rounds: int
    sm_mhz: tuple[int, int] | None
    """Lowest and highest SM clock, in MHz."""
    temperature_c: int | None
    """Highest temperature, in degrees Celsius."""
    power_w: float | None
    """Highest power, in W."""
    throttled: tuple[str, ...]
    marks: tuple[str, ...]


@dataclass(frozen=True)
class Explanation:
    """Why a stored answer is the answer."""

    answer: Answer
    run: StoredRun
    rounds: int
    """Number of rounds of the interleaved comparison."""
    ladder: tuple[Contender, ...]
    """Contenders, fastest first; empty if no rounds are stored."""
    chosen: str
    """The rule that chose the answer, in words."""
    candidates: Candidates
    roofline: Roofline | None
    """None if the answer's latency or the card's roofline limits for the problem are unknown."""
    card: CardRange | None
    """None if the card's state was not recorded."""
    outlook: Outlook | None = None
    """None if the kernel states no estimate, or too few configs were measured."""
    importance: Mapping[str, float] = field(default_factory=dict)
    """Share of each knob in what makes a config fast, largest first."""
    importance_missing: str = ""
    """Why `importance` is empty."""

    def as_json(self) -> dict[str, Any]:
        """Return the fields that `tuner explain --json` adds to the answer's document."""
        return {
            "run": self.run.id,
            "rounds": self.rounds,
            "chosen": self.chosen,
            "ladder": [_contender_json(contender) for contender in self.ladder],
            "candidates": self.candidates.as_json(),
            "importance": {name: _round(share) for name, share in self.importance.items()} or None,
            "importance_missing": self.importance_missing or None,
            "roofline": None if self.roofline is None else _roofline_json(self.roofline),
            "outlook": None if self.outlook is None else _outlook_json(self.outlook),
            "seconds": dict(self.run.seconds),
            "card": None if self.card is None else asdict(self.card),
        }


def _contender_json(contender: Contender) -> dict[str, Any]:
    measurement, resident = contender.measurement, contender.occupancy
    return {
        "config": None if measurement is None else dict(measurement.config),
        "name": contender.name,
        "roles": list(contender.roles),
        "latency_us": _round(contender.latency_us),
        "interval_us": [_round(bound) for bound in contender.interval_us],
        "speedup": _round(contender.speedup),
        "speedup_interval": [_round(bound) for bound in contender.speedup_interval],
        "registers": None if measurement is None else measurement.registers,
        "spills": None if measurement is None else measurement.spills,
        "shared_bytes": None if measurement is None else measurement.shared_bytes,
        "occupancy": None if resident is None else {**asdict(resident), "share": resident.share},
    }


def _roofline_json(roofline: Roofline) -> dict[str, Any]:
    return {
        "floor_us": _round(roofline.floor_us),
        "share": _round(roofline.share),
        "bound": roofline.bound,
        "missing": roofline.missing or None,
    }


def _outlook_json(outlook: Outlook) -> dict[str, Any]:
    return {
        "best_us": _round(outlook.best_us),
        "config": None if outlook.config is None else dict(outlook.config),
        "share": _round(outlook.share),
        "parts": {name: _round(us) for name, us in outlook.parts.items()},
        "limit": outlook.limit,
    }


def _round(value: float) -> float:
    return round(value, 4)
