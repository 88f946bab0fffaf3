"""The search: ask the sampler for a config, measure it, tell the result; then compare the finalists.

The search uses neither database nor terminal. It reports through callbacks, and runs on any measurer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from tuner.kernels.spec import Config
from tuner.measure.measurer import Measurer
from tuner.records import Measurement
from tuner.search.budget import UNLIMITED, Budget
from tuner.search.comparison import COMPARISON, ComparisonLoop, ComparisonSettings
from tuner.search.finalists import Finalists, close_to_best
from tuner.search.result import Result
from tuner.search.samplers import DEFAULT_SAMPLER
from tuner.search.trials import Trials

if TYPE_CHECKING:
    from tuner.search.proposer import Proposer

Returned = TypeVar("Returned")


@dataclass(frozen=True)
class LoopSettings:
    """Time limits and compile-ahead of the ask-measure-tell loop."""

    poll_s: float = 0.2
    """Polling interval of a waiting search, in seconds."""
    default_s: float = 60.0
    """Time limit for the default's measurement once the time budget is spent, in seconds."""
    settle_s: float = 1.0
    """Time limit for the measurement that runs when the loop ends, in seconds."""
    reserved_share: float = 0.1
    """Share of the time budget that is reserved for the interleaved comparison."""
    max_reserved_s: float = 3.0
    """Maximum of the reserved time, in seconds."""
    compile_ahead: int = 64
    """Maximum number of configs that compile while another search holds the device."""
    compile_ahead_share: float = 0.25
    """Maximum of these configs as a share of the trials."""

    def reserved_s(self, budget_s: float) -> float:
        """Return the seconds of a time budget that are reserved for the interleaved comparison."""
        return min(self.max_reserved_s, self.reserved_share * budget_s)


LOOP = LoopSettings()


def search(
    space: Sequence[Config],
    default: Config | None,
    measurer: Measurer,
    *,
    sampler: str = DEFAULT_SAMPLER,
    seed: int = 0,
    budget: Budget = UNLIMITED,
    known: Iterable[Measurement] = (),
    winners: Sequence[Config] = (),
    late_winners: Callable[[], Iterable[Config]] = tuple,
    estimate: Callable[[Config], float] | None = None,
    finalists: Finalists = close_to_best,
    kept: Collection[Config] = (),
    on_trial: Callable[[Measurement], None] = lambda measurement: None,
    on_round: Callable[[int, int], None] = lambda rounds, contenders: None,
    stop: Callable[[], bool] = lambda: False,
    comparison: ComparisonSettings = COMPARISON,
    loop: LoopSettings = LOOP,
) -> Result:
    """Search `space` for the fastest config.

    Args:
        space: the feasible configs.
        default: measured first and always a contender; None if the card cannot run it.
        measurer: measures and compares configs; stays open.
        sampler: a name of `tuner.search.SAMPLERS`.
        seed: searches with the same seed and measurements propose the same configs.
        budget: when to stop measuring.
        known: measurements of earlier runs, not repeated; they count towards `budget.trials`.
        winners: winners of near problems, measured after the default in this order, before the sampler is asked.
        late_winners: called once, at the first result, for winners that were found since.
        estimate: returns the estimated latency of a config, in us; None if there is no estimate.
        finalists: chooses the configs of the interleaved comparison.
        kept: configs that take part in it to its end if they ran, as the default does.
        on_trial: called with each measurement as it ends, and again if a recheck overrules it.
        on_round: called after each batch of rounds with the number of rounds done and of contenders left.
        stop: polled; True ends the search without a verdict, as `interrupted`.
        comparison: limits of the interleaved comparison.
        loop: limits of the ask-measure-tell loop.

    Raises:
        MeasureError: the measurer broke, or gave no round.
        UsageError: no sampler has this name.
    """
    from tuner.search.proposer import Proposer  # imports Optuna

    known = list(known)
    trials = Trials(known, on_trial)
    proposer = Proposer(space, sampler, seed, known, budget.min_improvement_probability or 0.0, estimate)
    started = monotonic()
    first = [*([] if default is None else [default]), *winners]
    asking = AskMeasureTell(proposer, measurer, trials, budget, loop, first, late_winners, default, stop)
    stopped = asking.run(started)
    measured = monotonic()
    if not stop():
        asking.settle()
    end = started + asking.waited_s + (inf if budget.seconds is None else budget.seconds)
    comparing = ComparisonLoop(
        trials,
        default,
        measurer,
        finalists,
        kept=kept,
        end=end,
        seed=seed,
        settings=comparison,
        on_round=on_round,
        stop=stop,
    )
    compared = comparing.run()
    if compared is None and stop():
        stopped = "interrupted"
    rounds, verdict = compared or (None, None)
    return Result(
        tuple(trials.by_config.values()),
        stopped,
        rounds,
        verdict,
        comparing.evidence,
        {"measure": measured - started, "comparison": monotonic() - measured},
        comparing.opening,
        comparing.vendor_left_out,
    )


class AskMeasureTell:
    """The loop that keeps the measurer busy until a limit is reached.

    Args:
        first: configs that are measured before the sampler is asked.
        late_winners: called once, at the first result, for more of them.
        default: waited for even if the time budget is spent, since every verdict is relative to it.
    """

    def __init__(
        self,
        proposer: Proposer,
        measurer: Measurer,
        trials: Trials,
        budget: Budget,
        settings: LoopSettings,
        first: Iterable[Config],
        late_winners: Callable[[], Iterable[Config]],
        default: Config | None,
        stop: Callable[[], bool],
    ) -> None:
        self._proposer, self._measurer, self._trials = proposer, measurer, trials
        self._settings, self._default, self._stop = settings, default, stop
        self._first = deque(first)
        self._late_winners: Callable[[], Iterable[Config]] | None = late_winners
        self._seconds = inf if budget.seconds is None else budget.seconds - settings.reserved_s(budget.seconds)
        space = len(proposer.space)
        self._max_trials = min(space, budget.trials or space)
        self._running = 0
        self.waited_s = 0.0
        """Seconds in which another search held the device. They are no part of the time budget."""

    def run(self, started: float) -> str:
        """Measure until a limit is reached; return which one, as `Result.stopped` has it.

        Args:
            started: monotonic time at which the time budget began.
        """
        until = started + self._seconds
        while not self._stop():
            left = until + self.waited_s - monotonic()
            if left > 0:
                self._submit()
            if self._running == 0:
                return "exhausted" if not self._proposer.unseen else "converged" if self._converged else "trials"
            if left <= 0 and not (self._waits_for_default and left > -self._settings.default_s):
                return "budget"
            timeout_s = min(self._settings.poll_s, max(left, self._settings.poll_s / 10))
            measurement = self._timed(partial(self._measurer.next, timeout_s))
            if measurement is not None:
                self._tell(measurement)
        return "interrupted"

    def _timed(self, call: Callable[[], Returned]) -> Returned:
        """Call the measurer, which may block while another search holds the device."""
        waits, before = self._measurer.waits_for_device, monotonic()
        returned = call()
        if waits:
            self.waited_s += monotonic() - before
        return returned

    def settle(self) -> None:
        """Give up the configs that are still running, and keep the results of those that end in time."""
        for measurement in self._timed(partial(self._measurer.settle, self._settings.settle_s)):
            self._tell(measurement)

    def _submit(self) -> None:
        while self._running < self._room and not self._converged:
            if len(self._trials.by_config) + self._running >= self._max_trials:
                break
            config = self._ask()
            if config is None:
                break
            self._measurer.submit(config)
            self._running += 1

    def _ask(self) -> Config | None:
        while self._first:
            config = self._first.popleft()
            if config in self._proposer.unseen:
                return self._proposer.take(config)
        return self._proposer.ask()

    def _tell(self, measurement: Measurement) -> None:
        self._running -= 1
        self._proposer.tell(measurement)
        self._trials.add(measurement)
        if self._late_winners is not None:
            self._first.extend(self._late_winners())
            self._late_winners = None

    @property
    def _room(self) -> int:
        """Number of configs that may run at once; more if compilers would idle until another search ends."""
        if not self._measurer.waits_for_device:
            return self._measurer.capacity
        ahead = int(self._settings.compile_ahead_share * self._max_trials)
        return max(self._measurer.capacity, min(self._settings.compile_ahead, ahead))

    @property
    def _converged(self) -> bool:
        return self._proposer.improvement_probability < self._proposer.min_improvement_probability

    @property
    def _waits_for_default(self) -> bool:
        return self._default is not None and self._default not in self._trials.by_config
