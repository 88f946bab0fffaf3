"""Joint search: one config for several problems, for callers that can hold no more than one.

Each measurement is kept in a run of its problem. The joint config is returned and not stored as an answer: an
answer is the best config of its own problem.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any

from tuner import recorded
from tuner.db.store import Store
from tuner.errors import NoDevice, NothingFound, UsageError
from tuner.kernels.spec import Config
from tuner.lookup.neighbours import with_current_knobs
from tuner.measure.joint import JointMeasurer, JointProblem
from tuner.measure.joint_comparison import OBJECTIVES, JointComparison
from tuner.records import Comparison, Measurement
from tuner.report.text import short
from tuner.search import COMPARISON, ComparisonSettings, Result, close_to_best, search
from tuner.search.space import Space, common
from tuner.suites.suite import Entry, Suite
from tuner.tuning.effort import Effort, require_search
from tuner.tuning.events import Events, StopToken
from tuner.tuning.gpu import AUTO, MeasureOptions
from tuner.tuning.heartbeat import Heartbeat
from tuner.tuning.joint_answer import JointAnswer, joint_answer
from tuner.tuning.lanes import chosen_gpus, on_cards
from tuner.tuning.other_gpus import gpu_here
from tuner.tuning.run import status_after, stored_answer
from tuner.tuning.stand_in import none_recorded, note_what_stands_in
from tuner.tuning.target import Target, recorded_target
from tuner.tuning.warm_start import near_winners

_MOST_FIRST = 16
"""Defaults and winners of the problems and of near ones that are measured first, at most."""


def check_joint(suite: Suite, objective: str) -> None:
    """Check that one config can be searched for these problems.

    Raises:
        UsageError: the objective is unknown, or the problems are fewer than two or of several kernels.
    """
    if objective not in OBJECTIVES:
        raise UsageError(f"joint is {' or '.join(OBJECTIVES)}, not {objective[:40]!r}")
    if len(suite.entries) < 2:
        raise UsageError(
            f"--joint finds one config for several problems, and {suite.name} is one; give more, such as --M 16,64"
        )
    kernels = list(dict.fromkeys(entry.reference for entry in suite.entries))
    if len(kernels) > 1:
        raise UsageError(
            f"--joint is for problems of one op, and {suite.name} has {', '.join(kernels)}; add --only op={kernels[0]}"
        )


def tune_jointly(
    suite: Suite,
    objective: str,
    effort: Effort,
    store: Store,
    options: MeasureOptions,
    events: Events,
    stop: StopToken,
) -> JointAnswer:
    """Search one config for all problems of a suite; its result has no verdict if nothing ran or it was stopped.

    Raises:
        UsageError: as `check_joint`, or several GPUs or a recorded space are named.
        NothingFound: no config is feasible for all problems.
        NoDevice: there is no GPU, and the problems were not recorded on one card.
    """
    check_joint(suite, objective)
    require_search()
    with _targets(suite, store, options, events) as targets:
        space = _common_space(suite.entries, targets)
        joint = _JointSearch(store, suite.entries, targets, space, objective, effort)
        result = joint.run(events, stop)
    return joint_answer(suite, objective, result, targets, len(space), joint.runs)


@contextmanager
def _targets(suite: Suite, store: Store, options: MeasureOptions, events: Events) -> Iterator[list[Target]]:
    """Yield a target for each problem, all of one card: a held one here, or one on which all of them were recorded."""
    if options.replay not in (None, AUTO):
        raise UsageError(f"a joint search replays a space of each problem, and {options.replay} is of one; name none")
    gpus = [] if options.replay is not None else chosen_gpus(options.gpu)
    if not gpus:
        yield _recorded_targets(suite, options.policy, events)
        return
    if len(gpus) > 1:
        raise UsageError(f"--joint measures on one card, and --gpu {options.gpu} names {len(gpus)}; name one of them")
    with on_cards(gpus, suite.name, store, options, events) as (lane,):
        yield [lane.target(entry, False) for entry in suite.entries]


def _recorded_targets(suite: Suite, policy: str, events: Events) -> list[Target]:
    problems = [entry.problem for entry in suite.entries]
    found = [recorded.of_problem(problem) for problem in problems]
    if missing := [problem for problem, spaces in zip(problems, found, strict=True) if not spaces]:
        raise none_recorded(missing[:1])
    chosen = recorded.on_one_card(found)
    if not chosen:
        raise NoDevice(
            f"there is no {gpu_here()}, and the problems of {suite.name} were recorded on different cards; "
            "search fewer of them at once"
        )
    note_what_stands_in([[space] for space in chosen], events)
    return [_with_one_measurer(recorded_target(space, space.problem, policy)) for space in chosen]


def _with_one_measurer(target: Target) -> Target:
    """Return the target with a measurer that is started once, so that its recorded rounds continue in each turn."""
    measurer = target.measurer()
    return replace(target, measurer=lambda: measurer)


def _common_space(entries: Sequence[Entry], targets: Sequence[Target]) -> Space:
    """Return the configs that are feasible for every problem.

    Raises:
        NothingFound: there is none.
    """
    space = common([target.space for target in targets])
    if not space:
        pairs = combinations(zip(entries, targets, strict=True), 2)
        apart = [[short(e.problem) for e, _ in pair] for pair in pairs if not common([t.space for _, t in pair])]
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
        targets: Sequence[Target],
        space: Sequence[Config],
        objective: str,
        effort: Effort,
    ) -> None:
        self._store, self._space, self._effort = store, space, effort
        self._join = OBJECTIVES[objective]
        self._defaults = list(dict.fromkeys(target.default for target in targets))
        feasible = set(space)
        one_default = len(self._defaults) == 1 and self._defaults[0] in feasible
        self._common_default = self._defaults[0] if one_default else None
        self._first = list(dict.fromkeys(c for c in self._promising(entries, targets) if c in feasible))[:_MOST_FIRST]
        self._parts = [self._part(entry, target) for entry, target in zip(entries, targets, strict=True)]
        self.runs = [
            store.start_run(
                target.signature_of(entry), entry.problem, target.provenance, self._settings(objective, target, part)
            )
            for entry, target, part in zip(entries, targets, self._parts, strict=True)
        ]

    def run(self, events: Events, stop: StopToken) -> Result:
        """Search; the runs end with the search, however it ends."""
        measurer = JointMeasurer(self._parts, self._join, self._keep)
        budget = self._effort.budget
        try:
            events.search_started(None, min(budget.trials or len(self._space), len(self._space)), 0)
            with stop.watched(), Heartbeat(self._store, self.runs, measurer):
                result = search(
                    self._space,
                    self._common_default,
                    measurer,
                    sampler=self._effort.sampler,
                    seed=self._effort.seed,
                    budget=replace(budget, seconds=budget.seconds and budget.seconds * len(self._parts)),
                    winners=self._first,
                    on_trial=partial(events.trial, None),
                    on_round=partial(events.round, None),
                    finalists=lambda ranked: self._finalists(ranked, measurer),
                    comparison=ComparisonSettings(
                        elimination_s=COMPARISON.limit_s
                    ),  # most of it goes into changing from problem to problem
                    stop=stop,
                )
        except BaseException as error:
            self._end(*status_after(error), {})
            raise
        finally:
            measurer.close()
            events.search_ended(None)
        status = "done" if result.verdict else "interrupted" if result.stopped == "interrupted" else "failed"
        self._end(status, result.stopped, {"joint": sum(result.seconds.values())}, result.comparison)
        return result

    def _promising(self, entries: Sequence[Entry], targets: Sequence[Target]) -> Iterator[Config]:
        """Yield the configs that are measured first: the problems' defaults, then the winners of them and near ones."""
        yield from (default for default in self._defaults if default is not None)
        if self._effort.warm_start:
            for entry, target in zip(entries, targets, strict=True):
                joint = replace(target, space=self._space)
                yield from near_winners(self._store, joint, entry)

    def _finalists(self, ranked: Sequence[Measurement], measurer: JointMeasurer) -> list[Measurement]:
        """Return the usual finalists and the problems' defaults, of the configs that were measured on all problems."""
        whole = [measurement for measurement in ranked if measurer.is_measured(measurement.config)]
        defaults = [measurement for measurement in whole if measurement.config in self._defaults]
        return list({m.config: m for m in [*defaults, *close_to_best(whole, measurer.round_us)]}.values())

    def _part(self, entry: Entry, target: Target) -> JointProblem:
        signature = target.signature_of(entry)
        known = [] if self._effort.force else self._store.known(signature, entry.problem, target.provenance)
        stored = stored_answer(self._store, target, entry).stored
        own = None if stored is None else with_current_knobs(signature, stored.answer.config)
        return JointProblem(entry.problem, target.measurer, target.default, own if own in target.space else None, known)

    def _settings(self, objective: str, target: Target, part: JointProblem) -> dict[str, Any]:
        """Return the settings of the run of one problem."""
        return {
            "joint": objective,
            "problems": len(self._parts),
            **self._effort.settings,
            "space": len(target.space),
            "common": len(self._space),
            "known": len(part.known),
            "default": None if target.default is None else target.default.text,
            **target.settings,
        }

    def _keep(self, place: int, measurement: Measurement) -> None:
        self._store.add_trial(self.runs[place], measurement)

    def _end(self, status: str, stopped: str, seconds: dict[str, float], comparison: Comparison | None = None) -> None:
        for place, run in enumerate(self.runs):
            rounds = comparison.parts[place] if isinstance(comparison, JointComparison) else None
            self._store.end_run(run, status, stopped, seconds, rounds)
