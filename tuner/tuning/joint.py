"""`tuner search OP --joint geomean|worst`: one config for several problems, for who can hold no more than one.

What is measured is kept, in a run of each problem. The joint config is printed and not stored as an answer: what serves
a problem is what was found for that problem alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import combinations
from typing import Any

from tuner.cli import INTERRUPTED
from tuner.cli.bench_rows import short
from tuner.cli.effort import Effort
from tuner.cli.interrupt import Interrupt
from tuner.cli.joint import joined, print_joined, print_joint_so_far, speed_text
from tuner.cli.text import SearchProgress, configs_text, failures_text, print_json, say
from tuner.db.store import Store
from tuner.errors import NoDevice, NothingFound, UsageError
from tuner.kernels.spec import Config
from tuner.lookup.neighbours import today
from tuner.measure import recorded
from tuner.measure.joint import OBJECTIVES, JointComparison, JointMeasurer, JointProblem
from tuner.records import Comparison, Measurement
from tuner.search.loop import COMPARISON_S, Result, close_to_best, search
from tuner.search.space import common
from tuner.suites.suite import Entry, Suite
from tuner.tuning.run import nothing_ran, stored_answer
from tuner.tuning.session import chosen_gpus, on_cards
from tuner.tuning.stand_in import none_recorded, say_what_stands_in
from tuner.tuning.target import Target, recorded_target
from tuner.tuning.warm_start import near_winners

_MOST_FIRST = 16
"""Of what won the problems and those near them, how many are tried first: of many problems it might be all trials."""


def refuse_what_is_not_joint(suite: Suite) -> None:
    """Raises `UsageError` where the problems are fewer than two, or not of one kernel."""
    if len(suite.entries) < 2:
        raise UsageError(
            f"--joint finds one config for several problems, and {suite.name} is one; give more, such as --M 16,64"
        )
    kernels = list(dict.fromkeys(entry.reference for entry in suite.entries))
    if len(kernels) > 1:
        raise UsageError(
            f"--joint is for problems of one op, and {suite.name} has {', '.join(kernels)}; add --only op={kernels[0]}"
        )


def joint_search(
    suite: Suite, objective: str, effort: Effort, store: Store, as_json: bool, *, gpu: str, policy: str, shared: bool
) -> int:
    """Shows how it goes, then what the config is worth on each problem."""
    with _sources(suite, store, gpu=gpu, policy=policy, shared=shared) as sources:
        space = _common_space(suite.entries, sources)
        joint = _JointSearch(store, suite.entries, sources, space, objective, effort)
        result = joint.run()
    if result.failures:
        say(f"Failed: {failures_text(result.failures)}.")
    if result.verdict is None:
        if result.stopped != "interrupted":
            raise nothing_ran(result)
        say(f"Interrupted after {configs_text(len(result.measurements))}; the same command goes on from there.")
        print_joint_so_far(objective, result.best, as_json)
        return INTERRUPTED
    found = joined(suite, objective, result, sources, len(space), joint.runs)
    if as_json:
        print_json(found.as_json())
    else:
        print_joined(found)
    return 0


@contextmanager
def _sources(suite: Suite, store: Store, *, gpu: str, policy: str, shared: bool) -> Iterator[list[Target]]:
    """One for each problem, all of one card: one here, which is held, or one on which all of them were recorded."""
    gpus = chosen_gpus(gpu)
    if not gpus:
        yield _recorded(suite, policy)
        return
    if len(gpus) > 1:
        raise UsageError(f"--joint measures on one card, and --gpu {gpu} names {len(gpus)}; name one of them")
    with on_cards(gpus, suite.name, store, policy, shared) as (lane,):
        yield [lane.source(entry, False) for entry in suite.entries]


def _recorded(suite: Suite, policy: str) -> list[Target]:
    problems = [entry.problem for entry in suite.entries]
    found = [recorded.of_problem(problem) for problem in problems]
    if missing := [problem for problem, spaces in zip(problems, found, strict=True) if not spaces]:
        raise none_recorded(missing[:1])
    chosen = recorded.of_one_card(found)
    if not chosen:
        raise NoDevice(
            f"there is no GPU here, and the problems of {suite.name} were recorded on different cards; "
            "search fewer of them at once"
        )
    say_what_stands_in([[space] for space in chosen])  # --replay is for one problem
    return [_going_on(recorded_target(space, space.problem, policy)) for space in chosen]


def _going_on(source: Target) -> Target:
    """A recording has no card to give back, and its rounds are to go on where the last turn left them."""
    measurer = source.measurer()
    return replace(source, measurer=lambda: measurer)


def _common_space(entries: Sequence[Entry], sources: Sequence[Target]) -> list[Config]:
    """What is feasible for every problem.

    Raises:
        NothingFound: nothing is.
    """
    space = common([source.space for source in sources])
    if not space:
        pairs = combinations(zip(entries, sources, strict=True), 2)
        apart = [[short(e.problem) for e, _ in pair] for pair in pairs if not common([s.space for _, s in pair])]
        which = f", and none for both {apart[0][0]} and {apart[0][1]}" if apart else ""
        raise NothingFound(
            f"no config is feasible for all {len(entries)} problems{which}; search fewer of them at once"
        )
    return space


class _JointSearch:
    """A joint search, and the run of each problem in which its measurements are kept."""

    def __init__(
        self,
        store: Store,
        entries: Sequence[Entry],
        sources: Sequence[Target],
        space: Sequence[Config],
        objective: str,
        effort: Effort,
    ) -> None:
        self._store, self._space, self._effort = store, space, effort
        self._join = OBJECTIVES[objective]
        self._defaults = list(dict.fromkeys(source.default for source in sources))
        feasible = set(space)
        self._everybodys = self._defaults[0] if len(self._defaults) == 1 and self._defaults[0] in feasible else None
        self._first = list(dict.fromkeys(c for c in self._promising(entries, sources) if c in feasible))[:_MOST_FIRST]
        self._parts = [self._part(entry, source) for entry, source in zip(entries, sources, strict=True)]
        self.runs = [
            store.start_run(entry.signature, entry.problem, source.provenance, self._settings(objective, source, part))
            for entry, source, part in zip(entries, sources, self._parts, strict=True)
        ]

    def run(self) -> Result:
        """Searches; however that ends, the runs end with it."""
        measurer = JointMeasurer(self._parts, self._join, self._keep)
        budget = self._effort.budget
        total = min(budget.trials or len(self._space), len(self._space))
        try:
            with SearchProgress(total, best_text=speed_text) as progress, Interrupt() as stop:
                result = search(
                    self._space,
                    self._everybodys,
                    measurer,
                    sampler=self._effort.sampler,
                    seed=self._effort.seed,
                    budget=replace(budget, seconds=budget.seconds and budget.seconds * len(self._parts)),
                    winners=self._first,
                    on_trial=progress.trial,
                    finalists=lambda ranked: self._finalists(ranked, measurer),
                    elimination_s=COMPARISON_S,  # most of it goes into changing from problem to problem
                    stop=stop,
                )
        except BaseException:
            self._end("failed", "error", {})
            raise
        finally:
            measurer.close()
        status = "done" if result.verdict else "interrupted" if result.stopped == "interrupted" else "failed"
        self._end(status, result.stopped, {"joint": sum(result.seconds.values())}, result.comparison)
        return result

    def _promising(self, entries: Sequence[Entry], sources: Sequence[Target]) -> Iterator[Config]:
        """What is tried first: the problems' defaults, then what won them and those near them."""
        yield from (default for default in self._defaults if default is not None)
        if self._effort.warm_start:
            for entry, source in zip(entries, sources, strict=True):
                joint = replace(source, space=self._space)
                yield from near_winners(self._store, joint, entry.signature, entry.problem)

    def _finalists(self, ranked: Sequence[Measurement], measurer: JointMeasurer) -> list[Measurement]:
        """The usual ones, and the problems' defaults, however they did; of those that were measured everywhere."""
        whole = [measurement for measurement in ranked if measurer.is_measured(measurement.config)]
        defaults = [measurement for measurement in whole if measurement.config in self._defaults]
        return list({m.config: m for m in [*defaults, *close_to_best(whole, measurer.round_us)]}.values())

    def _part(self, entry: Entry, source: Target) -> JointProblem:
        known = [] if self._effort.force else self._store.known(entry.signature, entry.problem, source.provenance)
        stored = stored_answer(self._store, source, entry.problem).stored
        own = None if stored is None else today(entry.signature, stored.answer.config)
        return JointProblem(
            entry.problem, source.measurer, source.default, own if own in set(source.space) else None, known
        )

    def _settings(self, objective: str, source: Target, part: JointProblem) -> dict[str, Any]:
        """What the run of one problem was asked for."""
        budget = self._effort.budget
        return {
            "joint": objective,
            "problems": len(self._parts),
            "sampler": self._effort.sampler,
            "seed": self._effort.seed,
            "trials": budget.trials,
            "budget_s": budget.seconds,
            "min_improvement_probability": budget.min_improvement_probability,
            "space": len(source.space),
            "common": len(self._space),
            "known": len(part.known),
            "default": None if source.default is None else source.default.text,
        }

    def _keep(self, place: int, measurement: Measurement) -> None:
        self._store.add_trial(self.runs[place], measurement)

    def _end(self, status: str, stopped: str, seconds: dict[str, float], comparison: Comparison | None = None) -> None:
        for place, run in enumerate(self.runs):
            rounds = comparison.parts[place] if isinstance(comparison, JointComparison) else None
            self._store.end_run(run, status, stopped, seconds, rounds)
