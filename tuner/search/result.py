"""The result of a search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from tuner.kernels.spec import Config
from tuner.records import Comparison, Evidence, Measurement
from tuner.search.verdict import Verdict, ratio


@dataclass(frozen=True)
class Result:
    """Measurements, interleaved comparison and verdict of one search."""

    measurements: tuple[Measurement, ...]
    """One for each config, known ones first, then in the order in which they ended."""
    stopped: str
    """`trials`, `budget`, `converged` (nothing better was expected), `exhausted` or `interrupted`."""
    comparison: Comparison | None = None
    """Rounds of the contenders that were not eliminated."""
    verdict: Verdict | None = None
    """None if no config ran with correct results or the search was interrupted."""
    evidence: Mapping[Config, Evidence] = field(default_factory=dict)
    """Correctness evidence of the contenders that were not eliminated."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall time by stage: `measure` and `comparison`."""
    opening: Comparison | None = None
    """First rounds of the comparison, with the contenders that were then eliminated."""
    vendor_left_out: bool = False
    """True if the comparison goes on without the vendor, which had no latency in some round."""

    @property
    def best(self) -> Measurement | None:
        """Fastest single measurement. The verdict may prefer another config."""
        return min((m for m in self.measurements if m.ok), key=lambda m: m.latency_us, default=None)

    @property
    def failures(self) -> Counter[str]:
        """Number of failed configs by kind of failure."""
        return Counter(m.failure for m in self.measurements if not m.ok)

    def slowdown(self, config: Config) -> float | None:
        """Return a config's latency over the answer's: infinite for a permanent failure, None if unknown.

        The ratio is taken over the rounds that both configs have in common. A config that was no contender was clearly
        slower, so the ratio of the two measurements is accurate enough.
        """
        measured = {measurement.config: measurement for measurement in self.measurements}
        own = measured.get(config)
        if self.verdict is None or own is None:
            return None
        if not own.ok:
            return inf if own.outcome.permanent else None
        best = self.verdict.config
        for comparison in (self.comparison, self.opening):
            if comparison is not None and {config.text, best.text} <= {*comparison.contenders}:
                return ratio(comparison, config.text, best.text)[0]
        return own.latency_us / measured[best].latency_us
