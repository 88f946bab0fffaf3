"""Deadlines of compiles: a fixed limit, and a lower one that follows the compile times observed so far."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass


@dataclass(frozen=True)
class AdaptiveDeadline:
    """A deadline relative to the 90th percentile of the compiles that have succeeded."""

    factor: float = 4.0
    """Multiple of the 90th percentile. Source: stops 3 of 5,854 recorded gemm compiles, none fast."""
    least_s: float = 5.0
    """Lower limit of the deadline, in s. Source: replay of recorded gemm spaces."""
    after: int = 20
    """Number of successful compiles before it applies. Source: replay of recorded gemm spaces."""


ADAPTIVE_DEADLINE = AdaptiveDeadline()


@dataclass(frozen=True)
class CompileSettings:
    """Limits of the compile pool."""

    deadline_s: float = 30.0
    """Upper limit of one compile, in s. Source: chosen; tiles that spill compile for minutes."""
    adaptive: AdaptiveDeadline | None = ADAPTIVE_DEADLINE
    """Lower limit once compile times are known; None keeps `deadline_s`."""
    niceness: int = 5
    """Niceness of a compiler against search and worker process. Source: halves a proposal's time beside them."""
    exit_grace_s: float = 2.0
    """Time in which a closed pool ends its compilers before it is killed, in s. Source: chosen."""


COMPILE_SETTINGS = CompileSettings()


class Deadline:
    """The deadline of one pool's compiles. `seconds` is its present value."""

    def __init__(self, most_s: float, adaptive: AdaptiveDeadline | None) -> None:
        self.seconds = self._most_s = most_s
        self._adaptive = adaptive
        self._durations_s: list[float] = []

    def learn(self, seconds: float) -> None:
        """Take the duration of a successful compile into account."""
        if self._adaptive is None:
            return
        insort(self._durations_s, seconds)
        if len(self._durations_s) >= self._adaptive.after:
            usual_s = self._durations_s[9 * len(self._durations_s) // 10]
            self.seconds = min(self._most_s, max(self._adaptive.least_s, self._adaptive.factor * usual_s))
