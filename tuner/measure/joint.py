"""The measurer of a joint search: one config for several problems.

A config's latency on a problem is divided by that of the problem's baseline, its kernel's default, and the ratios are
joined to one number, which the search minimizes. A card serves one problem at a time, so a batch of configs visits the
problems in turn. A config that fails, or is much slower, on one problem is not measured on the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from time import monotonic

from tuner.errors import MeasureError
from tuner.kernels.spec import Config, Problem
from tuner.measure.joint_comparison import Join, JointComparison, join_comparisons
from tuner.measure.measurer import Measurer
from tuner.records import Comparison, Evidence, Measurement, Outcome, median


@dataclass(frozen=True)
class JointSettings:
    """Effort spent on each problem of a joint search."""

    far_behind: float = 2.0
    """Ratio to the best joined latency beyond which a config is not measured further. Source: chosen."""
    baseline_rounds: int = 10
    """Number of rounds in which a baseline is timed. Source: a single measurement may be off by 2 (H200)."""
    baseline_s: float = 1.0
    """Time limit of these rounds, in s. Source: chosen."""
    least_comparison_s: float = 0.25
    """Time that each problem's rounds have when time is up, in s. Source: few rounds of one limit all problems."""


JOINT_SETTINGS = JointSettings()


@dataclass(frozen=True)
class JointProblem:
    """One problem of a joint search."""

    problem: Problem
    measurer: Callable[[], Measurer]
    """Makes the problem's measurer; called each time the problem is visited. The measurer is closed at the end."""
    default: Config | None
    own_answer: Config | None = None
    """The problem's own stored answer, timed with the contenders."""
    known: Sequence[Measurement] = ()
    """Measurements of earlier runs, not repeated."""


class JointMeasurer:
    """A measurer whose latencies are joined ratios of several problems.

    Args:
        problems: at least two.
        join: one of `OBJECTIVES`.
        on_measured: called with a problem's index and each of its measurements as it ends, in us.
    """

    def __init__(
        self,
        problems: Sequence[JointProblem],
        join: Join,
        on_measured: Callable[[int, Measurement], None] = lambda index, measurement: None,
        settings: JointSettings = JOINT_SETTINGS,
    ) -> None:
        self._problems, self._join, self._on_measured, self._settings = problems, join, on_measured, settings
        self._known = [{measurement.config: measurement for measurement in each.known} for each in problems]
        self._measured: list[dict[Config, Measurement]] = [{} for _ in problems]
        """Measurements of each problem, known ones from the visit on in which they are asked for."""
        self._fastest_us = [inf for _ in problems]
        self._baselines: dict[int, tuple[Config, float]] = {}
        """Each problem's baseline and its latency in us, by the problem's index."""
        self._best = inf
        self._open: Measurer | None = None
        self._current = 0
        """Index of the problem whose measurer is open."""
        self._turn = 0
        """Index of the problem that the last batch visited last, whether something was measured there or not."""
        self._submitted: list[Config] = []
        self._batch: list[Config] = []
        self._to_visit: list[int] = []
        """Problems that the batch has still to visit, the current one first."""
        self._in_progress: set[Config] = set()
        """Configs in progress on the current problem."""
        self._done: deque[Measurement] = deque()

    @property
    def capacity(self) -> int:
        return self._visit(self._current).capacity

    @property
    def waits_for_device(self) -> bool:
        return self._visit(self._current).waits_for_device

    @property
    def round_us(self) -> float:
        """Sum of the baselines' latencies, in us: one launch on each problem."""
        return sum(latency_us for _, latency_us in self._baselines.values())

    def is_measured(self, config: Config) -> bool:
        """Return whether a config was measured on all problems. One that is far behind is reported without."""
        return all(config in measured for measured in self._measured)

    def submit(self, config: Config) -> None:
        self._submitted.append(config)

    def next(self, timeout_s: float) -> Measurement | None:
        until = monotonic() + timeout_s
        while not self._done and (self._to_visit or self._submitted):
            if not self._to_visit:
                self._batch, self._submitted = self._submitted, []
                self._to_visit = self._from(self._turn)
                self._submit_batch()
            elif self._in_progress:
                measurement = self._visit(self._current).next(max(0.0, until - monotonic()))
                if measurement is None:
                    return None
                self._keep(measurement)
            else:
                self._end_visit()
        return self._done.popleft() if self._done else None

    def settle(self, timeout_s: float) -> Sequence[Measurement]:
        for measurement in self._visit(self._current).settle(timeout_s):
            self._keep(measurement)
        if self._to_visit and self._current not in self._baselines:
            self._choose_baseline(self._current)
        ended = [*self._done, *self._ended(self._batch)]
        self._done.clear()
        self._in_progress.clear()
        self._submitted, self._batch, self._to_visit = [], [], []
        return ended

    def compare(self, configs: Sequence[Config], rounds: int, seconds: float, seed: int) -> Comparison | Measurement:
        """Compare on each problem, with its baseline and its own answer besides the contenders."""
        end, comparisons = monotonic() + seconds, dict[int, Comparison]()
        for index in self._from(self._current):
            share = (end - monotonic()) / (len(self._problems) - len(comparisons))
            comparison = self._compare_on(index, configs, rounds, max(share, self._settings.least_comparison_s), seed)
            if isinstance(comparison, Measurement):
                return self._failed(index, comparison)
            comparisons[index] = comparison
        return self._joined_comparison(configs, comparisons)

    def recheck(self, configs: Sequence[Config], seed: int) -> Sequence[Evidence | Measurement]:
        """Check on all problems. The evidence is that of the largest error relative to its tolerance."""
        evidence: dict[Config, list[Evidence]] = {config: [] for config in configs}
        failed: dict[Config, Measurement] = {}
        for index in self._from(self._current):
            left = [config for config in configs if config not in failed]
            if not left:
                break
            for config, answer in zip(left, self._visit(index).recheck(left, seed), strict=True):
                if isinstance(answer, Measurement):
                    self._keep(answer)
                    failed[config] = self._failed(index, answer)
                else:
                    evidence[config].append(answer)
        return [failed.get(config) or _largest_error(evidence[config]) for config in configs]

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
        self._open = None

    def _visit(self, index: int) -> Measurer:
        """Return the measurer of a problem; close that of another first."""
        if self._open is None or index != self._current:
            self.close()
            self._open, self._current = self._problems[index].measurer(), index
        return self._open

    def _from(self, first: int) -> list[int]:
        """Return the indices of all problems, that of the last visit first, since changing the problem takes time."""
        return [*range(first, len(self._problems)), *range(first)]

    def _submit_batch(self) -> None:
        """Report the configs of the batch that have ended; submit the others to the next problem, with its default."""
        ended = {measurement.config: measurement for measurement in self._ended(self._batch)}
        self._done += ended.values()
        self._batch = [config for config in self._batch if config not in ended]
        if not self._batch:
            self._to_visit.clear()
            return
        self._turn = index = self._to_visit[0]
        default = self._problems[index].default
        for config in dict.fromkeys(self._batch if default is None else [default, *self._batch]):
            if config in self._measured[index]:
                continue
            if known := self._known[index].get(config):
                self._add(index, known)
            else:
                self._visit(index).submit(config)
                self._in_progress.add(config)

    def _end_visit(self) -> None:
        """Go on to the next problem once all configs of the batch have ended on the current one."""
        index = self._to_visit.pop(0)
        if index not in self._baselines:
            self._choose_baseline(index)
        self._submit_batch()

    def _keep(self, measurement: Measurement) -> None:
        """Keep a measurement of the current problem. A baseline that failed is one no more."""
        self._add(self._current, measurement)
        self._in_progress.discard(measurement.config)
        if not measurement.ok and self._baselines.get(self._current, (None,))[0] == measurement.config:
            del self._baselines[self._current]
        self._on_measured(self._current, measurement)

    def _add(self, index: int, measurement: Measurement) -> None:
        self._measured[index][measurement.config] = measurement
        self._fastest_us[index] = min(self._fastest_us[index], measurement.latency_us)

    def _choose_baseline(self, index: int) -> None:
        """Take the problem's default, or its fastest config so far if the default fails. Keep none if all fail."""
        default, ok = self._problems[index].default, [m for m in self._measured[index].values() if m.ok]
        for measurement in sorted(ok, key=lambda m: (m.config != default, m.latency_us)):
            config = measurement.config
            comparison = self._visit(index).compare(
                [config], self._settings.baseline_rounds, self._settings.baseline_s, 0
            )
            if isinstance(comparison, Comparison):
                self._baselines[index] = config, median(comparison.of(config.text))
                break
            self._keep(comparison)

    def _ended(self, configs: Sequence[Config]) -> list[Measurement]:
        return [measurement for config in configs if (measurement := self._joined(config)) is not None]

    def _joined(self, config: Config) -> Measurement | None:
        """Return a config's joint measurement, or None if it needs further problems.

        It ends with a failure, with all problems measured, or far behind the best. The latter assumes the problem's
        fastest latency on each problem that is not measured.
        """
        measured = [each.get(config) for each in self._measured]
        known = [each.get(config) for each in self._known]
        for index, (measurement, earlier) in enumerate(zip(measured, known, strict=True)):
            if failed := next((each for each in (measurement, earlier) if each is not None and not each.ok), None):
                return self._failed(index, failed)
        if len(self._baselines) < len(self._problems):
            return None
        at_best_us = [
            fastest_us if measurement is None else measurement.latency_us
            for measurement, fastest_us in zip(measured, self._fastest_us, strict=True)
        ]
        joined = self._join([latency_us / self._baselines[index][1] for index, latency_us in enumerate(at_best_us)])
        if None in measured and joined <= self._settings.far_behind * self._best:
            return None
        self._best = min(self._best, joined)
        shared = max((m.shared_bytes or 0 for m in measured if m is not None), default=0)
        return Measurement(config, Outcome.OK, (joined,), shared_bytes=shared)

    def _failed(self, index: int, measurement: Measurement) -> Measurement:
        """Return the joint failure of a config that failed on one problem."""
        return replace(measurement, error=f"{measurement.error} (on {self._problems[index].problem.text})")

    def _compare_on(
        self, index: int, configs: Sequence[Config], rounds: int, seconds: float, seed: int
    ) -> Comparison | Measurement:
        """Compare on one problem. If a companion fails, repeat without it, with another baseline if it was that."""
        while True:
            contenders = list(dict.fromkeys([*configs, *self._companions(index)]))
            comparison = self._visit(index).compare(contenders, rounds, seconds, seed)
            if isinstance(comparison, Comparison):
                return comparison
            self._keep(comparison)
            if comparison.config in configs:
                return comparison

    def _companions(self, index: int) -> list[Config]:
        """Return the problem's baseline, then its own answer if it has one that runs."""
        if index not in self._baselines:
            self._choose_baseline(index)
        if index not in self._baselines:
            text = self._problems[index].problem.text
            raise MeasureError(f"a joint search needs a config that runs on {text}, and each one failed")
        own = self._problems[index].own_answer
        measured = None if own is None else self._measured[index].get(own) or self._known[index].get(own)
        return [self._baselines[index][0], *([own] if own is not None and (measured is None or measured.ok) else [])]

    def _joined_comparison(self, configs: Sequence[Config], comparisons: dict[int, Comparison]) -> JointComparison:
        indices = range(len(self._problems))
        companions = [tuple(config.text for config in self._companions(index)) for index in indices]
        return join_comparisons(self._join, configs, [comparisons[index] for index in indices], companions)


def _largest_error(evidence: Sequence[Evidence]) -> Evidence:
    """Return the evidence with the largest error relative to its tolerance, with the launches of all."""
    worst = max(evidence, key=lambda each: (each.max_error or 0.0) / each.tolerance if each.tolerance else 0.0)
    return replace(worst, launches=sum(each.launches for each in evidence))
