"""Recording: every feasible config of a problem is measured, and the space can be replayed on any machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from tuner import recorded
from tuner.db.store import Store
from tuner.records import Measurement
from tuner.search import Budget, ComparisonSettings, Result
from tuner.suites.suite import Entry
from tuner.tuning.effort import Effort
from tuner.tuning.events import Events, StopToken
from tuner.tuning.run import run_search
from tuner.tuning.target import Target


@dataclass(frozen=True)
class RecordedFinalists:
    """Finalists of a recorded comparison: those of any later search are among them."""

    within: float = 1.05
    """Configs up to this multiple of the best latency."""
    fewest: int = 32
    """The fastest configs that are finalists whatever their latency."""

    def choose(self, ranked: Sequence[Measurement]) -> Sequence[Measurement]:
        """Return the finalists of measurements in order of latency."""
        close = [measurement for measurement in ranked if measurement.latency_us <= self.within * ranked[0].latency_us]
        return max(close, ranked[: self.fewest], key=len)


def record_space(
    entry: Entry, target: Target, store: Store, *, fresh: bool, events: Events, stop: StopToken
) -> tuple[Result, recorded.RecordedSpace | None]:
    """Measure every feasible config.

    Args:
        fresh: measure again what earlier runs measured.

    Returns:
        The search, and the recorded space; None if the search was stopped or no config ran with correct results.
    """
    result = run_search(
        target,
        store,
        entry,
        recording(fresh),
        reuse=lambda measurement: not measurement.looked_at,
        finalists=RecordedFinalists().choose,
        comparison=ComparisonSettings(elimination_s=None),
        events=events,
        stop=stop,
    )
    if result.stopped == "interrupted" or result.comparison is None:
        return result, None
    by_config = {measurement.config: measurement for measurement in result.measurements}
    return result, recorded.RecordedSpace(
        signature=entry.signature,
        problem=entry.problem,
        device=target.provenance.device,
        environment=target.provenance.environment,
        source=target.provenance.source,
        policy=target.policy,
        default=target.default,
        flops=target.flops,
        bytes=target.bytes,
        recorded_at=datetime.now(UTC).isoformat(timespec="seconds"),
        measurements=tuple(by_config[config] for config in target.space),
        comparison=result.comparison,
    )


def recording(fresh: bool) -> Effort:
    """Return the effort of a recording: every config in order, those of earlier runs only if `fresh`."""
    return Effort(Budget(), sampler="grid", force=fresh, warm_start=False)
