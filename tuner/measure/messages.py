"""Messages between a search, its compile pool and its GPU worker. Importing them needs neither torch nor triton."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tuner.kernels.spec import Config, Limits, Problem
from tuner.measure.deadline import COMPILE_SETTINGS, CompileSettings
from tuner.records import COLD, Outcome, Policy

FILL = "fill "
"""Prefix of a stage in which an examined config runs on other contents of a tensor, whose name follows."""


VENDOR_STAGE = "vendor"
"""Stage in which a vendor is compiled, checked and timed before the first comparison."""


@dataclass(frozen=True)
class Pool:
    """First message to the compile pool: kernel, card, number of concurrent compiles, and limits.

    The configs that follow are of `problem`, or come as a `Compile` with a problem of their own.
    """

    kernel: str
    problem: Problem
    limits: Limits
    jobs: int
    settings: CompileSettings = COMPILE_SETTINGS


@dataclass(frozen=True)
class Compile:
    """Request to the compile pool: a config of another problem of its kernel. Answered by `Compiled`."""

    problem: Problem
    config: Config


@dataclass(frozen=True)
class Compiled:
    """Result of compiling one config. It can be launched if `outcome` is `ok`."""

    config: Config
    outcome: Outcome
    error: str = ""
    compile_s: float | None = None
    """Duration of the compile, in s; None if Triton's cache had the config."""
    shared_bytes: int | None = None
    problem: Problem | None = None
    """Problem of the config; set by the pool, which may compile for several."""
    place: str = ""
    """File and line of an error in the kernel's file, if known."""


@dataclass(frozen=True)
class Interpret:
    """Request to an interpreter process: run configs of a problem on the CPU. Each is answered by `Interpreted`."""

    kernel: str
    problem: Problem
    limits: Limits
    configs: tuple[Config, ...]


@dataclass(frozen=True)
class Interpreted:
    """Result of one config in Triton's interpreter."""

    config: Config
    outcome: Literal["ok", "failed", "skipped"]
    text: str = ""
    """Error with file and line, or the reason of a skip."""


@dataclass(frozen=True)
class Drop:
    """Request to the compile pool: drop all unfinished configs. It is sent back once they are dropped."""


@dataclass(frozen=True)
class MeasureRooflineLimits:
    """Request to a worker without a task. Answered by `RooflineLimits` or `Unable`."""


@dataclass(frozen=True)
class Task:
    """Message to the worker: the problem, card and policy of the requests that follow.

    Answered by `Ready` or `Unable`. It replaces the task before.
    """

    kernel: str
    problem: Problem
    limits: Limits
    policy: Policy = COLD
    examines: bool = False
    """True if its configs are examined: all tensors may be written, and there is no reference yet."""
    vendors: tuple[str, ...] | None = None
    """Names of the kernel's vendors that may take part in comparisons; None: its own alone."""
    each_vendor: bool = False
    """True if each of them takes part in all rounds; else the fastest by a short timing does."""


@dataclass(frozen=True)
class Examine:
    """Request to the worker of a task that examines: run a config, and compare its outputs with those of others.

    Answered by `Ran`, or by a failed `Measurement`.
    """

    config: Config
    representatives: tuple[Config, ...] = ()
    """Configs that were examined before, one of each group."""
    seed: int = 0
    """Seed of the inputs."""
    reset: tuple[str, ...] = ()
    """Tensors that are zeroed before each launch."""
    read: tuple[str, ...] = ()
    """Written tensors that are known to be read too: they are not filled with other contents."""


@dataclass(frozen=True)
class Ran:
    """Result of an examined config that ran."""

    config: Config
    roles: Mapping[str, Literal["in", "out", "inout"]]
    """Role of each tensor."""
    agrees: Config | None = None
    """The first representative whose outputs are the same within tolerance; None if there is none."""
    differs: Mapping[Config, str] = field(default_factory=dict)
    """The first element that differs from each representative before that: `out[3, 17] is 1.5, not 2`."""


@dataclass(frozen=True)
class Measure:
    """Request to the worker: launch, check and time a config. Answered by `Measurement`."""

    config: Config
    best_us: float | None
    """Best latency so far, in us: a much slower config gets fewer launches. None gives each config all of them."""
    seed: int


@dataclass(frozen=True)
class Recheck:
    """Request to the worker: check a config repeatedly, on inputs of several kinds.

    Answered by `Evidence`, or by a failed `Measurement`.
    """

    config: Config
    seed: int


@dataclass(frozen=True)
class Rounds:
    """Request to the worker: interleaved rounds of these configs and the vendors of the task.

    Answered by `Comparison`, or by a failed `Measurement` if a config fails.
    """

    configs: tuple[Config, ...]
    rounds: int
    """Largest number of rounds."""
    seconds: float
    """Time after which no further round begins, in s."""
    seed: int


@dataclass(frozen=True)
class Stage:
    """Progress report of the worker: the stage that begins, and its config if the request has several."""

    name: str
    """`launch`, `check`, `time` or `comparison`; `fill NAME` if an examined config runs on other contents of a tensor;
    `vendor` if vendors are compiled, checked and timed before the first comparison."""
    config: Config | None = None
    vendor: str = ""
    """Name of the vendor that runs; empty for the kernel's own."""


@dataclass(frozen=True)
class Ready:
    """Report of the worker: it has loaded its task and waits for requests."""


@dataclass(frozen=True)
class Unable:
    """Report of the worker: it cannot serve the task on this card. The worker ends."""

    why: str
    kernel_fault: bool = False
    """True if the kernel file is wrong, as opposed to the card or the process."""
