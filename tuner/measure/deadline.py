"""How long a compile may take, told by what the others took."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass


@dataclass(frozen=True)
class AdaptiveDeadline:
    """Gives up a compile that takes `times` as long as nine of ten others, `least_s` at least, once so many have ended.

    A tile that spills its accumulators compiles for minutes, is slow, and without this holds one core up to the last
    deadline, and the end of a search with it. Of the compiles of the recorded gemm spaces (H200, 2026-11-28) this gives
    up 0 of 1,749, 0 of 1,359 and 3 of 2,746, the fastest of which has 0.13 of the best one's speed.
    """

    times: float = 4.0
    least_s: float = 5.0
    after: int = 20


ADAPTIVE_DEADLINE = AdaptiveDeadline()


class Deadline:
    """Of the compiles of one pool: `most_s` each, less where that is adaptive."""

    def __init__(self, most_s: float, adaptive: AdaptiveDeadline | None) -> None:
        self.seconds = self._most_s = most_s
        self._adaptive = adaptive
        self._took: list[float] = []

    def learn(self, seconds: float) -> None:
        """One more ended well, in so many seconds."""
        if self._adaptive is None:
            return
        insort(self._took, seconds)
        if len(self._took) >= self._adaptive.after:
            usual = self._took[9 * len(self._took) // 10]
            self.seconds = min(self._most_s, max(self._adaptive.least_s, self._adaptive.times * usual))
