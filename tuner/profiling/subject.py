"""The subject of a profile: a config of a problem on a card, its time, and the facts of its launches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuner.kernels.spec import Knob, Problem, Value
from tuner.profiling.analysis import LaunchFacts
from tuner.records import RooflineLimits


@dataclass(frozen=True)
class Subject:
    """Input of the rules."""

    problem: Problem
    knobs: Sequence[Knob]
    config: Mapping[str, Value]
    bytes: int
    """Smallest number of bytes that the problem must move."""
    flops: int
    roofline: RooflineLimits
    """Limits of the card, measured or assumed."""
    launches: tuple[LaunchFacts, ...]
    latency_us: float | None = None
    """By the timing policy; None if nothing was timed."""
    empty_us: float = 0.0
    """Latency of an empty kernel by that policy; 0 if it is unknown."""
    is_on_host: bool = False
    """True if an operand is in the memory of the host."""

    @property
    def memory_us(self) -> float:
        """Time to move the bytes at the bandwidth of a copy."""
        return self.bytes / self.roofline.copy_gb_per_s / 1e3

    @property
    def compute_us(self) -> float:
        """Time of the operations at the rate of a large matmul; 0 if that is unknown."""
        rate = self.roofline.tflops.get(RooflineLimits.arithmetic(self.problem))
        return self.flops / rate / 1e6 if rate else 0.0

    @property
    def floor_us(self) -> float:
        """Roofline time."""
        return max(self.memory_us, self.compute_us)

    @property
    def base_us(self) -> float:
        """Latency, or the roofline time if nothing was timed."""
        return self.latency_us or self.floor_us

    @property
    def share(self) -> float | None:
        """Roofline time over latency; None if nothing was timed, or an operand is in the memory of the host."""
        return self.floor_us / self.latency_us if self.latency_us and not self.is_on_host else None

    @property
    def bound(self) -> str:
        """The roofline that is higher: `memory` or `compute`."""
        return "compute" if self.compute_us > self.memory_us else "memory"
