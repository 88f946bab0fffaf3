"""What a search's process, its compile pool and its GPU worker tell each other. Needs neither torch nor triton."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.kernels.spec import Config, Limits, Problem
from tuner.measure.deadline import AdaptiveDeadline
from tuner.records import COLD, Outcome, Policy


@dataclass(frozen=True)
class Pool:
    """First message to the pool: what it compiles, for what, how many at once, how long each may take.

    The configs that follow are of `problem`, or come as a `Compile` with a problem of their own.
    """

    kernel: str
    problem: Problem
    limits: Limits
    jobs: int
    deadline_s: float
    adaptive: AdaptiveDeadline | None = None
    """Where a compile may take less than that, once it is known what they take."""


@dataclass(frozen=True)
class Compile:
    """Asks for a config of another problem of the pool's kernel."""

    problem: Problem
    config: Config


@dataclass(frozen=True)
class Compiled:
    """What came of compiling one config. `outcome` is `ok` when it can be launched."""

    config: Config
    outcome: Outcome
    error: str = ""
    compile_s: float | None = None
    """None where Triton's cache had it already."""
    shared_bytes: int | None = None
    problem: Problem | None = None
    """Told by the pool, which may compile for several."""


@dataclass(frozen=True)
class Drop:
    """Tells the pool to forget what it has not compiled yet; it sends the message back when it has."""


@dataclass(frozen=True)
class MeasureRooflineLimits:
    """Asks a worker that has no task yet for the card's `Ceilings`."""


@dataclass(frozen=True)
class Task:
    """Tells the worker what it serves from now on: a problem on a card, timed by a policy."""

    kernel: str
    problem: Problem
    limits: Limits
    policy: Policy = COLD


@dataclass(frozen=True)
class Measure:
    """Asks for a `Measurement`. `best_us`: what to beat; None takes all samples whatever they are."""

    config: Config
    best_us: float | None
    seed: int


@dataclass(frozen=True)
class Recheck:
    """Asks for `Evidence` that a config is right, over and over, on inputs of several kinds; else its failure."""

    config: Config
    seed: int


@dataclass(frozen=True)
class Rounds:
    """Asks for a `Duel` between these configs and the vendor's kernel; a failed `Measurement` if one of them fails.

    It ends after so many rounds, or with the round in which `seconds` pass.
    """

    configs: tuple[Config, ...]
    rounds: int
    seconds: float
    seed: int


@dataclass(frozen=True)
class Stage:
    """Told, not asked: what the worker is about to do, and with which config, if it is one of several in hand."""

    name: str
    config: Config | None = None


@dataclass(frozen=True)
class Ready:
    """Told once: the worker waits for requests."""


@dataclass(frozen=True)
class Unable:
    """Told instead: the worker cannot serve this problem here, and why."""

    why: str
