"""Measurements of single configs, and interleaved comparisons of several. Times are microseconds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import isfinite
from typing import Any

from tuner.kernels.spec import Config

FEWEST_SAMPLES = 10
"""Fewest samples of a config that was measured in full, unless it is slower than `SLOW_US`."""
SLOW_US = 50_000.0
"""Latency, in us, from which the first look suffices: few launches of that length are as certain as many short ones."""
VENDOR = "vendor"
"""Name of the vendor's implementation among the contenders."""
VENDOR_NAME = "torch"
"""Name of the vendor of an answer or a recorded space that states no other."""
_EACH_VENDOR = f"{VENDOR}:"
"""Prefix of a vendor's name among contenders of which several are vendors. No config's text begins so."""
NOT_INSTALLED = "not installed"
"""Start of the reason that is stored for a library that cannot be imported."""
NOT_TAKEN = "not for this problem"
"""Start of the reason that is stored for a vendor that does not support the problem."""

Interval = tuple[float, float]
"""Lower and upper bound."""


class Outcome(StrEnum):
    """Outcome of measuring one config."""

    OK = "ok"
    INFEASIBLE = "infeasible"
    """The compiler's report exceeds the card's limits; never launched."""
    COMPILE_ERROR = "compile_error"
    OUT_OF_RESOURCES = "out_of_resources"
    """The driver refused the launch."""
    OUT_OF_MEMORY = "out_of_memory"
    """Device memory was exhausted."""
    CRASHED = "crashed"
    """The process that compiled or ran it died, or its CUDA context did."""
    TIMEOUT = "timeout"
    WRONG_RESULT = "wrong_result"
    ERROR = "error"
    """Any other exception; the text names it."""

    @property
    def permanent(self) -> bool:
        """True if another try would end in the same way."""
        return self not in (Outcome.CRASHED, Outcome.TIMEOUT, Outcome.OUT_OF_MEMORY)


def are_latencies(samples: Sequence[float]) -> bool:
    """Return whether all samples are finite and above 0, as a time is."""
    return not samples or (isfinite(sum(samples)) and min(samples) > 0)


@dataclass(frozen=True)
class Measurement:
    """One measurement of one config.

    A latency is finite and above 0: with other samples the outcome is `error`, whatever was given.
    """

    config: Config
    outcome: Outcome
    samples: tuple[float, ...] = ()
    """Latencies of single launches in us, in order, without the first ones; empty unless `ok`."""
    stage: str = ""
    """Stage that failed: `compile`, `launch`, `check`, `time` or `comparison`."""
    error: str = ""
    compile_s: float | None = None
    compiled_by: str = ""
    """`pool`, or `worker` if the launch found nothing in the compiler's cache."""
    registers: int | None = None
    """Registers of a thread."""
    spills: int | None = None
    """Bytes that a thread spills. For information: a config that spills may be the fastest."""
    shared_bytes: int | None = None
    max_error: float | None = None
    """Largest deviation from the reference over its row's largest value."""
    tolerance: float | None = None

    def __post_init__(self) -> None:
        if self.ok and not are_latencies(self.samples):
            wrong = next(
                (sample for sample in self.samples if not (isfinite(sample) and sample > 0)), sum(self.samples)
            )
            failed = {
                "outcome": Outcome.ERROR,
                "samples": (),
                "stage": "time",
                "error": f"ValueError: a latency is finite and above 0, not {wrong:g} us",
            }
            for name, value in failed.items():
                object.__setattr__(self, name, value)

    @property
    def ok(self) -> bool:
        return self.outcome is Outcome.OK

    @property
    def latency_us(self) -> float:
        """Median of the samples; infinite unless `ok`, so that failures order last."""
        return median(self.samples) if self.ok else float("inf")

    @property
    def failure(self) -> str:
        """Name of the outcome, with the exception's type if it is `error`."""
        exception = re.match(r"[\w.]+", self.error) if self.outcome is Outcome.ERROR else None
        return f"{self.outcome} ({exception[0]})" if exception else str(self.outcome)

    @property
    def looked_at(self) -> bool:
        """True if it has only the samples of the first look, since it was far slower than the best."""
        return self.ok and len(self.samples) < FEWEST_SAMPLES and self.latency_us < SLOW_US


@dataclass(frozen=True)
class CardState:
    """State of a card, as NVML reports it. None: not reported."""

    sm_mhz: int | None = None
    memory_mhz: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    throttled: tuple[str, ...] = ()
    """Reasons for lowered clocks: `power_cap`, `thermal`, `hardware`, `power_brake`."""
    foreign: tuple[int, ...] = ()
    """Ids of other processes that use the card."""

    @property
    def marks(self) -> tuple[str, ...]:
        """Marks of a number taken in this state: `contended`, `throttled`. A power cap is normal for large kernels."""
        return (*["contended"] * bool(self.foreign), *["throttled"] * bool(set(self.throttled) - {"power_cap"}))

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> CardState:
        """Return the state whose `asdict` was written as JSON."""
        lists = {name: tuple(data.get(name, ())) for name in ("throttled", "foreign")}
        return CardState(**{**data, **lists})


@dataclass(frozen=True)
class Comparison:
    """Contenders timed in turn, in a new random order each round, so that drift affects all of them alike.

    A contender is a config's canonical text, `VENDOR`, or one of several vendors by `vendor_contender`. `rounds[i][j]`
    is contender j's latency in round i, in us.
    """

    contenders: tuple[str, ...]
    rounds: tuple[tuple[float, ...], ...]
    states: tuple[CardState, ...] = ()
    """The card after each round; empty if it was not read. Several rounds may share one reading."""
    vendor: str = ""
    """Name of the vendor that is timed as `VENDOR`; empty if it is not known, as in stored and recorded rounds."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Vendors that are not timed, by name, each with the reason."""
    ahead_s: float = 0.0
    """Time that compiling and checking the vendors took before the first round, in s. It counts to no time limit."""

    def of(self, contender: str) -> tuple[float, ...]:
        """Return the latencies of one contender, round by round."""
        column = self.contenders.index(contender)
        return tuple(latencies[column] for latencies in self.rounds)

    def extended(self, other: Comparison) -> Comparison:
        """Return this comparison with the rounds of a later one between the same contenders."""
        if other.contenders != self.contenders:
            raise ValueError("a comparison is extended by rounds between the same contenders")
        left_out = {**self.left_out, **other.left_out}
        return replace(self, rounds=self.rounds + other.rounds, states=self.states + other.states, left_out=left_out)

    def among(self, contenders: Sequence[str]) -> Comparison:
        """Return this comparison with only these contenders."""
        rounds = zip(*(self.of(contender) for contender in contenders), strict=True)
        return replace(self, contenders=tuple(contenders), rounds=tuple(rounds))

    @property
    def vendors(self) -> Mapping[str, str]:
        """The contenders that are vendors, by name, if each of several is timed; else empty."""
        return {name.removeprefix(_EACH_VENDOR): name for name in self.contenders if name.startswith(_EACH_VENDOR)}

    @property
    def timed(self) -> tuple[str, ...]:
        """Contenders with a latency in each round: a number that is finite and above 0."""
        return tuple(contender for contender in self.contenders if are_latencies(self.of(contender)))

    @property
    def marks(self) -> tuple[str, ...]:
        """Marks of all rounds."""
        return marks_of(self.states)


def vendor_contender(name: str) -> str:
    """Return the contender that stands for one of several vendors."""
    return f"{_EACH_VENDOR}{name}"


def marks_of(states: Iterable[CardState]) -> tuple[str, ...]:
    """Return the marks of all these states, sorted."""
    return tuple(sorted({mark for state in states for mark in state.marks}))


def median(values: Sequence[float]) -> float:
    """Return the middle value, or the mean of the middle two."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
