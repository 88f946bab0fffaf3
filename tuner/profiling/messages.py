"""Messages between a profile and its processes. Importing them needs neither torch nor triton."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tuner.kernels.spec import Config, Limits, Problem
from tuner.profiling.compiled import CompiledLaunch
from tuner.records import COLD, Policy


@dataclass(frozen=True)
class ProfileTask:
    """First message to a worker: the config to profile. Answered by `Ran` or `Failed`."""

    kernel: str
    """Name or file of the kernel, as the catalog takes it."""
    problem: Problem
    config: Config
    limits: Limits
    policy: Policy = COLD
    launches: bool = True
    """False to compile for a card that is not here, without a launch."""


@dataclass(frozen=True)
class Ran:
    """The compiled launches of a config, and its samples in us if it was launched."""

    launches: tuple[CompiledLaunch, ...]
    samples: tuple[float, ...] = ()
    calls: int = 0
    """Number of its steps that are calls on the host in place of a launch."""


@dataclass(frozen=True)
class RunProton:
    """Request to a worker that launches: run the config under Proton. Answered by `Times`, `Trace`, `Stalls`, or
    `Failed` with the reason why it is not possible here."""

    kind: Literal["times", "trace", "stalls"]


@dataclass(frozen=True)
class Times:
    """Time of each kernel by Proton, in us, by name: the mean of its launches."""

    kernels: Mapping[str, float]


@dataclass(frozen=True)
class Trace:
    """A trace in the JSON format of Chrome's tracing, which Perfetto opens."""

    text: str
    """The document."""
    source: str
    """`proton`, or `events` if it was made of CUDA events."""


@dataclass(frozen=True)
class Stalls:
    """Sampled reasons for which warps wait, as shares of all samples of the config's kernels, and the sampled places:
    source lines as far as Proton knows them, else kernels."""

    reasons: Mapping[str, float]
    lines: Mapping[str, float]


@dataclass(frozen=True)
class Failed:
    """Reason why a request cannot be answered."""

    why: str
