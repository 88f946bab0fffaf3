"""What is known of a measurement: on which device, with which compiler, by which method, and what came out.

Plain frozen values shared by measuring, storing and looking up. Standard library only. Times are microseconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import Any

from tuner.kernels.spec import Config, Limits, Problem, Signature

_MEMORY_SHARE = 0.02
"""By which two drivers, or ECC, may differ on how much memory one product has: H20 and H20-3e differ by a third."""


@dataclass(frozen=True)
class Device:
    """What a card is. `id` is how people and keys name it; the other fields are its fingerprint."""

    name: str
    """As NVML gives it: "NVIDIA H100 80GB HBM3". An imported answer may know no more: all numbers are 0 then."""
    capability: tuple[int, int]
    sm_count: int
    memory_bytes: int
    l2_bytes: int
    shared_bytes: int
    """Shared memory one block can opt in to."""
    pci_id: str = ""
    """Vendor and device id, "10de:2330"."""
    mig: str = ""
    """MIG profile, "1g.10gb"; empty for a whole card."""

    @property
    def id(self) -> str:
        """A slug of the name and, for a slice, its profile: `nvidia-h100-80gb-hbm3`, `nvidia-h200-mig-1g.18gb`."""
        return re.sub(r"[^a-z0-9.]+", "-", f"{self.name} {f'mig {self.mig}' if self.mig else ''}".lower()).strip("-")

    @staticmethod
    def called(name: str) -> Device:
        """A card of which nothing but the name is known."""
        return Device(name, (0, 0), 0, 0, 0, 0)

    @property
    def is_described(self) -> bool:
        """Whether more than its name is known."""
        return self.sm_count > 0

    def is_same_card(self, other: Device) -> bool:
        """Whether the two are one product that is called by different names: drivers and hosts do not agree on them.

        Product (PCI id), slice and all that a kernel can tell must be the same. The size of memory is what the driver
        leaves of it, and may be 2 % off. Without a PCI id nobody knows.
        """

        def told(card: Device) -> tuple[object, ...]:
            return card.pci_id, card.mig, card.capability, card.sm_count, card.l2_bytes, card.shared_bytes

        apart = abs(self.memory_bytes - other.memory_bytes)
        return bool(self.pci_id) and told(self) == told(other) and apart <= _MEMORY_SHARE * self.memory_bytes

    @property
    def limits(self) -> Limits:
        """What a kernel's rules may ask of this card."""
        return Limits(self.capability, self.sm_count, self.shared_bytes)


@dataclass(frozen=True)
class Environment:
    """What compiled the code and what ran it."""

    triton: str
    ptxas: str = ""
    torch: str = ""
    driver: str = ""


@dataclass(frozen=True)
class Policy:
    """How latencies were taken. Numbers of different policies are never compared.

    `cold`: nothing of a launch's operands is in L2 when it begins; `warm`: they are as the launch before left them.
    `events`: device events around each launch, with work queued in front so that the host is not timed. `graph`: events
    around a graph of many launches, for kernels shorter than the events' own cost. The statistic is the median. The
    number counts versions of our method.
    """

    cache: str = "cold"
    timer: str = "events"
    version: int = 1

    @property
    def text(self) -> str:
        """`cold-events-1`, the policy's place in a key."""
        return f"{self.cache}-{self.timer}-{self.version}"


COLD = Policy()
POLICIES = {"cold": COLD, "warm": Policy("warm", "graph"), "graph": Policy("cold", "graph")}
"""By the name that a user gives."""


class Outcome(StrEnum):
    """How the measuring of one config ended."""

    OK = "ok"
    INFEASIBLE = "infeasible"
    """The compiler's report exceeds the card; never launched."""
    COMPILE_ERROR = "compile_error"
    OUT_OF_RESOURCES = "out_of_resources"
    """The driver refused the launch."""
    OUT_OF_MEMORY = "out_of_memory"
    """Device memory ran out."""
    CRASHED = "crashed"
    """The process that compiled or ran it died, or its CUDA context did."""
    TIMEOUT = "timeout"
    WRONG_RESULT = "wrong_result"
    ERROR = "error"
    """Anything else; the text names the exception."""

    @property
    def permanent(self) -> bool:
        """Whether trying again could not end otherwise."""
        return self not in (Outcome.CRASHED, Outcome.TIMEOUT, Outcome.OUT_OF_MEMORY)


@dataclass(frozen=True)
class Measurement:
    """One config, tried once."""

    config: Config
    outcome: Outcome
    samples: tuple[float, ...] = ()
    """Latency of single launches, in order, the first ones dropped; empty unless `ok`."""
    stage: str = ""
    """Where it failed: compile, launch, check or time."""
    error: str = ""
    compile_s: float | None = None
    compiled_by: str = ""
    """`pool`, or `worker` where the launch found nothing in the compiler's cache."""
    registers: int | None = None
    """A thread's."""
    spills: int | None = None
    """Bytes a thread spills; for information, a config that spills may well win."""
    shared_bytes: int | None = None
    max_error: float | None = None
    """Largest deviation from the reference over the reference's largest value."""
    tolerance: float | None = None

    @property
    def ok(self) -> bool:
        return self.outcome is Outcome.OK

    @property
    def latency_us(self) -> float:
        """Median of the samples; infinite unless `ok`, so that failures order last."""
        return median(self.samples) if self.ok else float("inf")

    @property
    def failure(self) -> str:
        """How it failed, in a word; of an exception nobody foresaw, its type too."""
        unforeseen = re.match(r"[\w.]+", self.error) if self.outcome is Outcome.ERROR else None
        return f"{self.outcome} ({unforeseen[0]})" if unforeseen else str(self.outcome)

    @property
    def looked_at(self) -> bool:
        """Whether a first look showed it to be far behind the best, and it got no more."""
        return self.ok and len(self.samples) < FEWEST_SAMPLES and self.latency_us < SLOW_US


@dataclass(frozen=True)
class CardState:
    """A card as the driver's management library saw it. None is what that library would not say."""

    sm_mhz: int | None = None
    memory_mhz: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    throttled: tuple[str, ...] = ()
    """Why its clocks are held down: `power_cap`, `thermal`, `hardware`, `power_brake`."""
    foreign: tuple[int, ...] = ()
    """Processes of others that keep it busy."""

    @property
    def marks(self) -> tuple[str, ...]:
        """What is wrong with a number taken in this state; a power cap is how big kernels run, and is not."""
        return (*["contended"] * bool(self.foreign), *["throttled"] * bool(set(self.throttled) - {"power_cap"}))

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> CardState:
        """The state whose `asdict` went through JSON."""
        lists = {name: tuple(data.get(name, ())) for name in ("throttled", "foreign")}
        return CardState(**{**data, **lists})


@dataclass(frozen=True)
class RooflineLimits:
    """What a card reaches at best, measured by our own clock: no kernel is faster."""

    copy_gb_per_s: float
    """Read and written, of a device copy far larger than L2."""
    tflops: Mapping[str, float]
    """Of a large square matmul, by dtype."""
    launch_us: Mapping[str, float]
    """An empty kernel's latency, by policy text: what cannot be told apart from nothing."""

    def roofline_us(self, problem: Problem, flops: int, bytes: int) -> float:
        """The least time that a problem of so many operations and bytes can take here."""
        reached = self.tflops.get(self.arithmetic(problem))
        compute = 0.0 if reached is None else flops / reached / 1e6
        return max(compute, bytes / self.copy_gb_per_s / 1e3)

    @staticmethod
    def arithmetic(problem: Problem) -> str:
        """Which matmul bounds a problem, as a key of `tflops`."""
        return "tf32" if problem.values.get("precision") == "tf32" else problem.dtype


@dataclass(frozen=True)
class Comparison:
    """Contenders measured in turn, in a new random order every round, so that drift meets all alike.

    A contender is a config's canonical text or `VENDOR`; `rounds[i][j]` is contender j's latency in round i.
    """

    contenders: tuple[str, ...]
    rounds: tuple[tuple[float, ...], ...]
    states: tuple[CardState, ...] = ()
    """The card when it was looked at after each round, several of which may share a look; empty where nobody could."""

    def of(self, contender: str) -> tuple[float, ...]:
        """The latencies of one contender, round by round."""
        column = self.contenders.index(contender)
        return tuple(latencies[column] for latencies in self.rounds)

    def extended(self, other: Comparison) -> Comparison:
        """This duel with the rounds of a later one between the same contenders."""
        if other.contenders != self.contenders:
            raise ValueError("a duel is extended by rounds between the same contenders")
        return Comparison(self.contenders, self.rounds + other.rounds, self.states + other.states)

    def among(self, contenders: Sequence[str]) -> Comparison:
        """This duel as these of its contenders saw it."""
        rounds = zip(*(self.of(contender) for contender in contenders), strict=True)
        return Comparison(tuple(contenders), tuple(rounds), self.states)

    @property
    def marks(self) -> tuple[str, ...]:
        """What disturbed any of its rounds."""
        return marks_of(self.states)


def marks_of(states: Iterable[CardState]) -> tuple[str, ...]:
    """What was wrong in any of these states."""
    return tuple(sorted({mark for state in states for mark in state.marks}))


FEWEST_SAMPLES = 10
"""Of a config that was measured well, unless it is slow."""
SLOW_US = 50_000.0
"""From here on a look is enough: three launches of that length are no less certain than ten short ones."""
VENDOR = "vendor"
"""The contender that is no config: what a user would call otherwise."""

Interval = tuple[float, float]


@dataclass(frozen=True)
class Tie:
    """A config that was not shown to be more than 1 % slower than the fastest.

    `slowdown` is against the winner, 1.002: 0.2 % slower.
    """

    config: Config
    slowdown: float
    interval: Interval


@dataclass(frozen=True)
class Evidence:
    """What a config was checked on, and what came out."""

    max_error: float | None = None
    """Largest deviation from the reference over the reference's largest value."""
    tolerance: float | None = None
    inputs: tuple[str, ...] = ()
    """The kind of every set of inputs: `normal`, `special`."""
    launches: int = 0
    """How many launches' outputs were compared."""


IMPORTED = "imported"
"""The kind of an answer that a file of others gave: nobody checked it here, and it may never have been timed."""


@dataclass(frozen=True)
class Answer:
    """What a search found for one problem. Append-only: a newer answer replaces, nothing is overwritten."""

    problem: Problem
    kind: str
    """`tuned`, `default` where nothing beat the default, or `IMPORTED`."""
    config: Config
    latency_us: float | None
    """None where no timing came with it, as for `interval_us`; only an imported one may lack them."""
    interval_us: Interval | None
    speedup: float | None
    """Default's latency over this config's, round by round; None where the default does not run."""
    speedup_interval: Interval | None
    default_latency_us: float | None
    vendor_latency_us: float | None
    ties: tuple[Tie, ...] = ()
    unresolved: bool = False
    """Some configs were shown to be neither within 1 % of the fastest nor beyond."""
    evidence: Evidence = Evidence()
    marks: tuple[str, ...] = ()
    """What to know of the numbers: `launch_bound` (nothing but launching is timed), `contended` (others used the card),
    `throttled` (its clocks were held down)."""
    flops: int = 0
    bytes: int = 0

    @property
    def tflops(self) -> float | None:
        """TFLOP/s; None for a kernel that only moves data, and where it is not known."""
        return self.flops / self.latency_us / 1e6 if self.flops and self.latency_us else None

    @property
    def gb_per_s(self) -> float | None:
        """Least bytes moved, in GB/s; None where it is not known."""
        return self.bytes / self.latency_us / 1e3 if self.bytes and self.latency_us else None


@dataclass(frozen=True)
class Provenance:
    """Where an answer comes from: what its key compares, and what stands beside it for information."""

    device: Device
    environment: Environment
    source: str
    policy: str
    recorded: str | None = None
    """The recorded space it was replayed from; None: measured here."""
    tuner: str = ""

    def as_json(self) -> dict[str, str]:
        """Versions, source and policy: what documents give as `tuned_with`."""
        environment = self.environment
        return {
            "triton": environment.triton,
            "ptxas": environment.ptxas,
            "torch": environment.torch,
            "driver": environment.driver,
            "source": self.source,
            "policy": self.policy,
            "tuner": self.tuner,
        }


@dataclass(frozen=True)
class StoredAnswer:
    """An answer as the store hands it out."""

    id: int
    answer: Answer
    provenance: Provenance
    created_at: str
    """UTC, ISO 8601."""
    run_id: int
    trials: int = 0
    """Configs its run knew in the end: those it measured and those it took over from earlier runs."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What its run was asked for."""

    @property
    def taken_from(self) -> str | None:
        """The file or the store that it was imported from; None: it was found by a search into this store."""
        origin: str | None = self.settings.get("imported")
        return origin


@dataclass(frozen=True, slots=True)
class Transfer:
    """What the config of one answer lost on the problem of another, measured there."""

    id: int
    from_answer: int
    """Id of the answer whose config was tried."""
    to_answer: int
    """Id of the answer that it was compared with, on whose problem."""
    distance: float
    """Octaves between the two problems, over all dims."""
    slowdown: float
    """How many times as long as that answer it takes; infinite where it did not run right."""

    def as_json(self) -> list[float | None]:
        """Its five values in order, null for an infinite slowdown: a table has many of these."""
        slowdown = None if self.slowdown == inf else self.slowdown
        return [self.id, self.from_answer, self.to_answer, self.distance, slowdown]

    @staticmethod
    def from_json(values: Sequence[Any]) -> Transfer:
        """The transfer that `as_json` wrote."""
        id, from_answer, to_answer, distance, slowdown = values
        return Transfer(id, from_answer, to_answer, distance, inf if slowdown is None else slowdown)


@dataclass(frozen=True)
class StoredRun:
    """One search as the store hands it out, whether it gave an answer or not."""

    id: int
    signature: Signature
    problem: Problem
    provenance: Provenance
    settings: Mapping[str, Any]
    """What it was asked for."""
    status: str
    """`running` (or killed), `done`, `failed` or `interrupted`."""
    stopped: str | None
    """What ended it: `trials`, `budget`, `converged`, `exhausted`, `interrupted`, `error`, or `imported` where only the
    answer came; None while it runs."""
    seconds: Mapping[str, float]
    """Wall time by stage; empty while it runs."""
    started_at: str
    """UTC, ISO 8601, as `ended_at`."""
    ended_at: str | None
    trials: int = 0
    """Configs it measured itself; what it took over from earlier runs is not among them."""
    answer_us: float | None = None
    """Latency of its answer; None where it gave none, or one that was never timed."""

    def as_json(self) -> dict[str, Any]:
        """The run without what it measured, as `tuner show --json` and the service give it."""
        return {
            "run": self.id,
            "op": self.problem.op,
            "problem": self.problem.values,
            "device": self.provenance.device.id,
            "recorded": self.provenance.recorded,
            "status": self.status,
            "stopped": self.stopped,
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "measured": self.trials,
            "taken_over": self.settings.get("known", 0),
            "answer_us": None if self.answer_us is None else round(self.answer_us, 4),
        }


def median(values: Sequence[float]) -> float:
    """The middle value, or the mean of the middle two."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
