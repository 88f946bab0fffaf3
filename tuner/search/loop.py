"""The loop: ask for a config, have it measured, learn; then let the best meet in a duel and give the verdict.

One path for every measurer. The search knows no database and no terminal: it reports through `on_trial`.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from time import monotonic

from tuner.errors import MeasureError
from tuner.kernels.spec import Config
from tuner.measure.measurer import Measurer
from tuner.records import VENDOR, Comparison, Evidence, Measurement, median
from tuner.search.sampler import DEFAULT, Proposer
from tuner.search.verdict import FEWEST_ROUNDS, FIRST_LOOK, Verdict, decide, preference, ratio, rounds_wanted

_RECHECK_SEED = 1_000_001
"""Inputs that a finalist must be right on are others than those of its measurement."""
_CLOSE, _NEAR = 1.1, 1.05
_FEWEST_FINALISTS, _MOST_FINALISTS = 8, 64
"""All that are close to the best meet in the duel, so that neither luck nor a drift of the clocks while they were
measured, one after the other, decides who is in: the first rounds send most of them home. Where that are too many, half
the places go to the fastest, and half to those of the near ones that the verdict's rule prefers: two runs then bring
the same ones."""
_NOT_FAR = 1.02
"""The first look, at few rounds, sends home who is shown to be farther behind than this: of some 60 finalists of the
recorded spaces (2026-11-28) 8 to 53, and with them a fifth of all visits."""
_CONFIRMED = 1.05
"""A duel whose fastest is slower than this times the fastest measurement has shown that one to be luck (graphs of 2 us
kernels read 15 % less now and then, H200, 2026-11-28). Who is close to the best is then asked again, without it."""
_FIRST_ROUNDS_US = 2e6
"""Longest that the rounds up to the first look shall take with all of them, which leaves fewer of slow ones."""
_LAUNCHES_OF_A_FINALIST = 4 * FIRST_LOOK
"""In each of those rounds three, and one that is dropped."""
_MOST_BLIND, _BLIND_SHARE = 64, 0.25
"""Configs that compile before there is a result, while another search's duel has the device: so many, and no more than
this share of the trials. Proposed blindly they cost evaluations at first, and of 200 none in the end: over the recorded
gemm spaces a search with 52 on their way at the start ends 0.01 % behind the optimum, one with 20 at 0.10 %; of 60
trials it would be 0.3 to 0.6 % and 0.2 % (8 seeds, 2026-11-28)."""
_LOOK_S = 0.2
"""How often a search that waits looks whether it shall stop."""
COMPARISON_S, _MIN_COMPARISON_S = 30.0, 1.0
"""Longest that the rounds may take in all, without a budget; and what they may take when the budget is spent, since
without a few rounds nothing is shown."""
ELIMINATION_S = 4.0
"""Longest that a race usually may take, once it has `FEWEST_ROUNDS`: it is over by then but for many finalists of
100 us and more, within 1 % of each other. Of 63 duels that took more than 60 rounds (H200, 2026-11-28) 53 named the
same winner after 67 as in the end."""
_FINALIST_S, _FEWEST_IN_HASTE = 0.15, 5
"""What a finalist takes to be timed and checked again; with a time budget, as many are taken as there is time for."""
_DEFAULT_S = 60.0
"""How long the default is waited for when time is up."""
_SETTLE_S = 1.0
"""How long the config that is being measured may take to end when time is up."""
_RESERVED_SHARE, _RESERVED_S = 0.1, 3.0
"""Of a time budget, what is kept for the duel: this share, at most so many seconds."""

Finalists = Callable[[Sequence[Measurement]], Sequence[Measurement]]
"""Picks who meets in the duel, from the measurements that are ok, fastest first."""


@dataclass(frozen=True)
class Budget:
    """When to stop measuring: after so many configs, known ones included, or so many seconds; None is no limit."""

    trials: int | None = None
    seconds: float | None = None
    min_improvement_probability: float | None = None
    """Or when no unseen config has a larger chance than this to be faster than the best by more than 1 %, as far as the
    sampler can tell; before that it gives every choice of a knob a turn."""


@dataclass(frozen=True)
class Result:
    """What a search found. `verdict` is None where nothing ran right, or where it was interrupted."""

    measurements: tuple[Measurement, ...]
    stopped: str
    """`trials`, `budget`, `converged` (nothing better was expected), `exhausted` or `interrupted`."""
    comparison: Comparison | None = None
    verdict: Verdict | None = None
    evidence: Mapping[Config, Evidence] = field(default_factory=dict)
    """What those that stayed in the duel were checked on."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall time by stage."""
    opening: Comparison | None = None
    """The duel's first rounds, with those too that were then sent home."""

    @property
    def best(self) -> Measurement | None:
        """The fastest single measurement; the duel may prefer another."""
        return min((m for m in self.measurements if m.ok), key=lambda m: m.latency_us, default=None)

    @property
    def failures(self) -> Counter[str]:
        """How many configs failed, by how."""
        return Counter(m.failure for m in self.measurements if not m.ok)

    def slowdown(self, config: Config) -> float | None:
        """How many times as long as the answer a config takes; infinite if it failed and always would; None: unknown.

        Round by round where both met. Else one measurement over the other: then it was too far behind to be a finalist,
        and the few per cent by which such ratios err matter little.
        """
        measured = {measurement.config: measurement for measurement in self.measurements}
        found = measured.get(config)
        if self.verdict is None or found is None:
            return None
        if not found.ok:
            return inf if found.outcome.permanent else None
        best = self.verdict.config
        for comparison in (self.comparison, self.opening):
            if comparison is not None and {config.text, best.text} <= {*comparison.contenders}:
                return ratio(comparison, config.text, best.text)[0]
        return found.latency_us / measured[best].latency_us


def close_to_best(ranked: Sequence[Measurement], launch_us: float | None = None) -> Sequence[Measurement]:
    """The usual finalists.

    Args:
        launch_us: what a launch of one takes, where that is not the latency that they are ranked by.
    """
    launch_us = launch_us or (ranked[0].latency_us if ranked else inf)
    affordable = int(_FIRST_ROUNDS_US / (_LAUNCHES_OF_A_FINALIST * launch_us))
    most = min(max(affordable, _FEWEST_FINALISTS), _MOST_FINALISTS)
    close = [measurement for measurement in ranked if measurement.latency_us <= _CLOSE * ranked[0].latency_us]
    if len(close) <= most:
        return max(close, ranked[:_FEWEST_FINALISTS], key=len)
    near = [measurement for measurement in close if measurement.latency_us <= _NEAR * ranked[0].latency_us]
    preferred = sorted(near, key=lambda measurement: preference(measurement.config, measurement.shared_bytes or 0))
    return list(dict.fromkeys([*close[: most // 2], *preferred, *close]))[:most]


def search(
    space: Sequence[Config],
    default: Config | None,
    measurer: Measurer,
    *,
    sampler: str = DEFAULT,
    seed: int = 0,
    budget: Budget = Budget(),
    known: Iterable[Measurement] = (),
    winners: Sequence[Config] = (),
    late_winners: Callable[[], Iterable[Config]] = tuple,
    on_trial: Callable[[Measurement], None] = lambda measurement: None,
    finalists: Finalists = close_to_best,
    elimination_s: float | None = ELIMINATION_S,
    stop: Callable[[], bool] = lambda: False,
) -> Result:
    """Searches `space` for the fastest config.

    Args:
        space: the feasible set.
        default: measured first and always in the duel; None where the card cannot run it.
        measurer: measures configs; stays open.
        known: measurements of earlier runs, not repeated; they count towards `budget.trials`.
        winners: of near problems; measured next, in this order, before the sampler is asked.
        late_winners: asked once, when the first result is back, for those that have won since.
        on_trial: called with every measurement the moment it ends, and again if a re-check overrules it.
        finalists: picks who meets in the duel.
        race_s: how many seconds a race may take; it has 20 rounds at least. Finalists leave it as soon as they are
            shown to be beaten. None: it is no race, and all stay for as many rounds as the verdict wants.
        stop: asked now and then; True ends the search without a duel, as interrupted.
    """
    first = [*([] if default is None else [default]), *winners]
    proposer = Proposer(space, sampler, seed, known := list(known), budget.min_improvement_probability or 0.0)
    run = _Run(space, default, first, late_winners, measurer, proposer, budget, on_trial, stop)
    run.found.update((measurement.config, measurement) for measurement in known)
    return run.finish(finalists, elimination_s, seed, run.measure())


class _Run:
    def __init__(
        self,
        space: Sequence[Config],
        default: Config | None,
        first: Iterable[Config],
        late_winners: Callable[[], Iterable[Config]],
        measurer: Measurer,
        proposer: Proposer,
        budget: Budget,
        on_trial: Callable[[Measurement], None],
        stop: Callable[[], bool],
    ) -> None:
        self.found: dict[Config, Measurement] = {}
        self._met: dict[Config, float] = {}
        """Latencies, in us, of those that met in a duel which did not confirm the fastest of them."""
        self._evidence: dict[Config, Evidence] = {}
        self._opening: Comparison | None = None
        self._first = deque(first)
        self._late_winners: Callable[[], Iterable[Config]] | None = late_winners
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
            left = self._until - monotonic()
            if left > 0:
                self._submit()
            if self._on_the_way == 0:
                return "exhausted" if not self._proposer.unseen else "converged" if self._converged else "trials"
            if left <= 0 and not (self._waits_for_default and left > -_DEFAULT_S):
                return "budget"
            measurement = self._measurer.next(min(_LOOK_S, max(left, _LOOK_S / 10)))
            if measurement is not None:
                self._told(measurement)
        return "interrupted"

    def finish(self, finalists: Finalists, elimination_s: float | None, seed: int, stopped: str) -> Result:
        """The duel of those that are right again on fresh inputs, a race unless `race_s` is None, and its verdict."""
        measured = monotonic()
        if not self._stop():
            for measurement in self._measurer.settle(_SETTLE_S):
                self._told(measurement)
        comparison = verdict = None
        while comparison is None and not self._stop() and (contenders := self._contenders(finalists)):
            comparison = self._compare_finalists(contenders, finalists, elimination_s, seed)
        if comparison is not None:
            verdict = self._verdict(comparison)
        elif self._stop():
            stopped = "interrupted"
        seconds = {"measure": measured - self._started, "comparison": monotonic() - measured}
        return Result(
            tuple(self.found.values()), stopped, comparison, verdict, self._evidence, seconds, opening=self._opening
        )

    def _submit(self) -> None:
        while self._on_the_way < self._room and not self._converged:
            if len(self.found) + self._on_the_way >= self._trials:
                break
            config = self._next_config()
            if config is None:
                break
            self._measurer.submit(config)
            self._on_the_way += 1

    @property
    def _room(self) -> int:
        """Configs that may be on their way: more where compilers would idle until another search is through."""
        blind = min(_MOST_BLIND, int(_BLIND_SHARE * self._trials)) if self._measurer.waits_for_device else 0
        return max(self._measurer.capacity, blind)

    @property
    def _converged(self) -> bool:
        """Whether nothing better is expected."""
        return self._proposer.improvement_probability < self._proposer.min_improvement_probability

    @property
    def _waits_for_default(self) -> bool:
        """Whether it is on its way: without it nobody knows what an answer is worth."""
        return self._default is not None and self._default not in self.found

    def _told(self, measurement: Measurement) -> None:
        self._on_the_way -= 1
        self._proposer.tell(measurement)
        self._keep(measurement)
        if self._late_winners is not None:
            self._first.extend(self._late_winners())
            self._late_winners = None

    def _next_config(self) -> Config | None:
        while self._first:
            config = self._first.popleft()
            if config in self._proposer.unseen:
                return self._proposer.take(config)
        return self._proposer.ask()

    def _keep(self, measurement: Measurement) -> None:
        self.found[measurement.config] = measurement
        self._on_trial(measurement)

    def _ranked(self) -> list[Measurement]:
        """What ran right, the fastest first; those that met already by what was seen there."""
        right = [m for m in self.found.values() if m.ok]
        seen = [replace(m, samples=(self._met[m.config],)) if m.config in self._met else m for m in right]
        return sorted(seen, key=lambda m: m.latency_us)

    def _contenders(self, finalists: Finalists) -> list[Config]:
        ranked = self._ranked()
        left = self._end - monotonic()
        most = None if left == inf else max(_FEWEST_IN_HASTE, int(left / _FINALIST_S))
        chosen = {measurement.config for measurement in finalists(ranked)[:most]}
        return [m.config for m in ranked if m.config in chosen or m.config == self._default]

    def _compare_finalists(
        self, contenders: Sequence[Config], finalists: Finalists, elimination_s: float | None, seed: int
    ) -> Comparison | None:
        """As many rounds as it takes to tell the contenders apart, within limits; None if one of them fails.

        In a race those that are shown to be beaten leave the field. Those that stay must be right again and again.
        """
        started = monotonic()
        end = max(started + _MIN_COMPARISON_S, min(self._end, started + COMPARISON_S))
        comparison: Comparison | None = None
        verdict: Verdict | None = None
        while (wanted := rounds_wanted(verdict)) and not self._stop():
            left = max(0.0, end - monotonic())
            more = self._measurer.compare(
                contenders, wanted, left, seed + (0 if comparison is None else len(comparison.rounds))
            )
            if isinstance(more, Measurement):
                self._keep(more)
                return None
            if not more.rounds:  # a recording is used up
                break
            if comparison is None and monotonic() < end and (others := self._contenders_after(more, finalists)):
                contenders = others
                continue
            if comparison is None:
                self._opening = comparison = more
            else:
                comparison = comparison.extended(more)
            verdict = self._verdict(comparison)
            if elimination_s is not None:
                contenders = self._left(contenders, comparison, verdict)
                comparison = comparison.among([*(config.text for config in contenders), VENDOR])
            if len(comparison.rounds) >= FEWEST_ROUNDS:
                if not self._right_again(contenders):
                    return None
                if elimination_s is not None:
                    end = min(end, started + elimination_s)
            if monotonic() >= end:
                break
        if self._stop():
            return None
        if comparison is None:
            raise MeasureError("a duel has at least one round, and this measurer gave none")
        return comparison if self._right_again(contenders) else None

    def _left(self, contenders: Sequence[Config], comparison: Comparison, verdict: Verdict) -> list[Config]:
        """Who is not shown to be beaten; the winner and the default are always left."""
        as_good = {verdict.config, self._default, *(tie.config for tie in verdict.ties)}
        if len(comparison.rounds) < FEWEST_ROUNDS:
            lower = {config: ratio(comparison, config.text, verdict.config.text)[1][0] for config in contenders}
            as_good |= {config for config in contenders if lower[config] <= _NOT_FAR}
        return [config for config in contenders if config in as_good]

    def _contenders_after(self, comparison: Comparison, finalists: Finalists) -> list[Config]:
        """Who shall meet instead, where the first rounds show that the fastest measurement was luck; [] else."""
        met = {
            config: median(comparison.of(config.text)) for config in self.found if config.text in comparison.contenders
        }
        if min(met.values()) <= _CONFIRMED * self._ranked()[0].latency_us:
            return []
        self._met |= met
        others = self._contenders(finalists)
        return others if set(others) - set(met) else []

    def _right_again(self, contenders: Sequence[Config]) -> bool:
        """Whether all are, as far as was not seen before; one that is not becomes a failed measurement."""
        unseen = [config for config in contenders if config not in self._evidence]
        for config, answer in zip(unseen, self._measurer.recheck(unseen, _RECHECK_SEED), strict=True):
            if isinstance(answer, Measurement):
                self._keep(answer)
            else:
                self._evidence[config] = answer
        return all(config in self._evidence for config in contenders)

    def _verdict(self, comparison: Comparison) -> Verdict:
        configs = [config for config in self.found if config.text in comparison.contenders]
        shared = {config: self.found[config].shared_bytes or 0 for config in configs}
        return decide(comparison, configs, self._default, shared)
