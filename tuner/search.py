"""The loop: ask for a config, have it measured, learn; then let the best meet in a duel and give the verdict.

One path for every measurer. The search knows no database and no terminal: it reports through `on_trial`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from time import monotonic

from tuner.errors import MeasureError
from tuner.kernels.spec import Config
from tuner.measure.measurer import Measurer
from tuner.records import Duel, Measurement
from tuner.sampler import Proposer
from tuner.verdict import Verdict, decide, rounds_wanted

_RECHECK_SEEDS = (1_000_001, 1_000_002)
"""Fresh inputs that a finalist must be right on, besides those of its measurement."""
_LOOK_S = 0.2
"""How often a search that waits looks whether it shall stop."""
_DUEL_S = 60.0
"""Longest that the rounds between two looks may take, without a budget."""
_SETTLE_S = 1.0
"""How long the config that is being measured may take to end when time is up."""
_RESERVED_SHARE, _RESERVED_S = 0.1, 3.0
"""Of a time budget, what is kept for the duel: this share, at most so many seconds."""


@dataclass(frozen=True)
class Budget:
    """When to stop measuring: after so many configs, known ones included, or so many seconds; None is no limit."""

    trials: int | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Result:
    """What a search found. `verdict` is None where nothing ran right, or where it was interrupted."""

    measurements: tuple[Measurement, ...]
    stopped: str
    """`trials`, `budget`, `exhausted` or `interrupted`."""
    duel: Duel | None = None
    verdict: Verdict | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall time by stage."""

    @property
    def best(self) -> Measurement | None:
        """The fastest single measurement; the duel may prefer another."""
        return min((m for m in self.measurements if m.ok), key=lambda m: m.latency_us, default=None)

    @property
    def failures(self) -> Counter[str]:
        """How many configs failed, by outcome."""
        return Counter(str(m.outcome) for m in self.measurements if not m.ok)


def best_five(ranked: Sequence[Measurement]) -> Sequence[Measurement]:
    """The usual finalists."""
    return ranked[:5]


def search(
    space: Sequence[Config],
    default: Config | None,
    measurer: Measurer,
    *,
    sampler: str = "tpe",
    seed: int = 0,
    budget: Budget = Budget(),
    known: Iterable[Measurement] = (),
    on_trial: Callable[[Measurement], None] = lambda measurement: None,
    finalists: Callable[[Sequence[Measurement]], Sequence[Measurement]] = best_five,
    stop: Callable[[], bool] = lambda: False,
) -> Result:
    """Searches `space` for the fastest config.

    Args:
        space: the feasible set.
        default: measured first and always in the duel; None where the card cannot run it.
        measurer: measures configs; stays open.
        known: measurements of earlier runs, not repeated; they count towards `budget.trials`.
        on_trial: called with every measurement the moment it ends, and again if a re-check overrules it.
        finalists: picks who meets in the duel, from the measurements that are ok, fastest first.
        stop: asked now and then; True ends the search without a duel, as interrupted.
    """
    run = _Run(space, default, measurer, Proposer(space, sampler, seed, known := list(known)), budget, on_trial, stop)
    run.found.update((measurement.config, measurement) for measurement in known)
    return run.finish(finalists, seed, run.measure())


class _Run:
    def __init__(
        self,
        space: Sequence[Config],
        default: Config | None,
        measurer: Measurer,
        proposer: Proposer,
        budget: Budget,
        on_trial: Callable[[Measurement], None],
        stop: Callable[[], bool],
    ) -> None:
        self.found: dict[Config, Measurement] = {}
        self._default, self._measurer, self._proposer = default, measurer, proposer
        self._on_trial, self._stop = on_trial, stop
        self._trials = min(len(space), budget.trials or len(space))
        self._on_the_way = 0
        self._started = monotonic()
        self._end = self._started + (inf if budget.seconds is None else budget.seconds)
        self._until = self._end
        if budget.seconds is not None:
            self._until -= min(_RESERVED_S, _RESERVED_SHARE * budget.seconds)

    def measure(self) -> str:
        """Keeps the measurer busy until a limit is met; which one it was."""
        while not self._stop():
            while self._on_the_way < self._measurer.capacity and len(self.found) + self._on_the_way < self._trials:
                config = self._next_config()
                if config is None:
                    break
                self._measurer.submit(config)
                self._on_the_way += 1
            if self._on_the_way == 0:
                return "trials" if self._proposer.unseen else "exhausted"
            left = min(_LOOK_S, self._until - monotonic())
            if left <= 0:
                return "budget"
            measurement = self._measurer.next(left)
            if measurement is not None:
                self._told(measurement)
        return "interrupted"

    def finish(
        self, finalists: Callable[[Sequence[Measurement]], Sequence[Measurement]], seed: int, stopped: str
    ) -> Result:
        """The duel of those that are right again on fresh inputs, and its verdict."""
        measured = monotonic()
        duel = verdict = None
        if self._on_the_way and not self._stop():
            for measurement in self._measurer.settle(_SETTLE_S):
                self._told(measurement)
        while verdict is None and not self._stop() and (contenders := self._contenders(finalists)):
            if self._right_again(contenders) and (duel := self._fought(contenders, seed)) is not None:
                verdict = self._verdict(duel, contenders)
        if verdict is None and self._stop():
            stopped = "interrupted"
        seconds = {"measure": measured - self._started, "duel": monotonic() - measured}
        return Result(tuple(self.found.values()), stopped, duel, verdict, seconds)

    def _told(self, measurement: Measurement) -> None:
        self._on_the_way -= 1
        self._proposer.tell(measurement)
        self._keep(measurement)

    def _next_config(self) -> Config | None:
        if self._default is not None and self._default in self._proposer.unseen:
            return self._proposer.take(self._default)
        return self._proposer.ask()

    def _keep(self, measurement: Measurement) -> None:
        self.found[measurement.config] = measurement
        self._on_trial(measurement)

    def _contenders(self, finalists: Callable[[Sequence[Measurement]], Sequence[Measurement]]) -> list[Config]:
        ranked = sorted((m for m in self.found.values() if m.ok), key=lambda m: m.latency_us)
        chosen = {measurement.config for measurement in finalists(ranked)}
        return [m.config for m in ranked if m.config in chosen or m.config == self._default]

    def _right_again(self, contenders: Sequence[Config]) -> bool:
        """Whether all are, which adds to the evidence; one that is not becomes a failed measurement."""
        all_right = True
        for config in contenders:
            answer = self._measurer.recheck(config, _RECHECK_SEEDS)
            if isinstance(answer, Measurement):
                all_right = False
                self._keep(answer)
            else:
                before = self.found[config]
                self.found[config] = replace(before, max_error=max(answer, before.max_error or 0.0))
        return all_right

    def _fought(self, contenders: Sequence[Config], seed: int) -> Duel | None:
        """As many rounds as it takes to tell the contenders apart, within limits; None if one of them fails."""
        duel: Duel | None = None
        verdict: Verdict | None = None
        while wanted := rounds_wanted(verdict):
            left = min(_DUEL_S, max(0.0, self._end - monotonic()))
            more = self._measurer.duel(contenders, wanted, left, seed + (0 if duel is None else len(duel.rounds)))
            if isinstance(more, Measurement):
                self._keep(more)
                return None
            if not more.rounds:
                if duel is None:
                    raise MeasureError("a duel has at least one round, and this measurer gave none")
                break
            duel = more if duel is None else duel.extended(more)
            if monotonic() >= self._end:
                break
            verdict = self._verdict(duel, contenders)
        return duel

    def _verdict(self, duel: Duel, contenders: Sequence[Config]) -> Verdict:
        shared = {config: self.found[config].shared_bytes or 0 for config in contenders}
        return decide(duel, contenders, self._default, shared)
