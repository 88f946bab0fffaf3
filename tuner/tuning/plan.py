"""The plan of a search: the size of its spaces, what is stored, and how long it would take. Measures nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from statistics import median
from typing import Any

from tuner import catalog, recorded
from tuner.db.store import Store
from tuner.errors import NoDevice, UnknownName
from tuner.kernels.spec import Config, Problem
from tuner.lookup.query import Query
from tuner.lookup.table import Table
from tuner.measure import cores, device
from tuner.records import Device, StoredRun
from tuner.search import Budget
from tuner.search.refusals import none_feasible
from tuner.search.space import FeasibleSpace, ListedSpace, Space, common
from tuner.suites.suite import Entry, Suite
from tuner.tuning.covered import same_space
from tuner.tuning.effort import Effort
from tuner.tuning.run import feasible_answers


@dataclass(frozen=True)
class PaceSettings:
    """Times to expect on a card without stored searches (gemm on an H200, 2026-11-28), and the runs that are read."""

    newest_runs: int = 1000
    """Stored runs from which the pace is estimated."""
    start_s: float = 5.0
    """Seconds to start a worker process and import a kernel."""
    comparison_s: float = 2.0
    """Seconds of an interleaved comparison."""
    compile_s: float = 0.5
    """Seconds to compile a config on one core."""
    measure_s: float = 0.013
    """Seconds to measure a config on the card."""


SETTINGS = PaceSettings()


@dataclass(frozen=True)
class ProblemPlan:
    """The plan of one problem."""

    problem: Problem
    combinations: int
    """Combinations of the knobs' choices, feasible or not."""
    space: Space | None
    """The feasible configs; None if the kernel's code cannot be loaded here."""
    stored: str
    """Match of the stored answer; `none`."""
    known: int
    """Configs that earlier runs measured."""
    trials: int
    """Configs to measure."""
    seconds: float
    refused: str = ""
    """Error of a space without feasible configs, with the number that each constraint refuses."""

    @property
    def feasible(self) -> int | None:
        """Number of feasible configs; None if the kernel's code cannot be loaded here."""
        return None if self.space is None else len(self.space)

    def jointly(self, common: int, budget: Budget, pace: Pace) -> ProblemPlan:
        """Return the plan of a joint search, in which `common` configs are feasible for all problems."""
        trials = min(budget.trials or common, common)
        return replace(self, trials=trials, seconds=pace.seconds(trials, budget.seconds))

    def compared(self, searches: bool, pace: Pace) -> ProblemPlan:
        """Return the plan of a bench, which compares the answer, and may first search a problem without one."""
        untuned = searches and self.stored != "exact" and self.trials
        seconds = pace.comparison_s + (self.seconds if untuned else 0.0)
        return replace(self, trials=self.trials if untuned else 0, seconds=seconds)

    def as_json(self) -> dict[str, Any]:
        """Return the row of `tuner search --dry-run --json`."""
        return {
            "op": self.problem.op,
            "problem": self.problem.values,
            "combinations": self.combinations,
            "feasible": self.feasible,
            "stored": self.stored,
            "known": self.known,
            "trials": self.trials,
            "seconds": round(self.seconds, 1),
        }


@dataclass(frozen=True)
class Pace:
    """Expected times of a search on a card."""

    trial_s: float
    comparison_s: float
    start_s: float
    basis: str
    """The searches or the assumption from which the times are estimated."""

    @staticmethod
    def on(card: Device, runs: Sequence[StoredRun]) -> Pace:
        """Return the pace of stored searches on such cards; without any, a rough model."""
        alike = [
            run for run in runs if run.provenance.device.id == card.id and not run.provenance.recorded and run.trials
        ]
        alike = [run for run in alike if {"measure", "comparison"} <= run.seconds.keys()]
        if alike:
            trial_s = sum(run.seconds["measure"] for run in alike) / sum(run.trials for run in alike)
            comparison_s = median(run.seconds["comparison"] for run in alike)
            return Pace(trial_s, comparison_s, SETTINGS.start_s, f"by stored searches there: {len(alike)}")
        usable = cores.usable()
        rate = f"{SETTINGS.compile_s:g} s on one core for each config, {usable} cores"
        basis = f"a guess, as none was searched there yet: {rate}"
        trial_s = max(SETTINGS.compile_s / usable, SETTINGS.measure_s)
        return Pace(trial_s, SETTINGS.comparison_s, SETTINGS.start_s, basis)

    def seconds(self, trials: int, budget_s: float | None) -> float:
        """Return the seconds of one problem, without the start."""
        full = trials * self.trial_s + self.comparison_s
        return 0.0 if trials == 0 else full if budget_s is None else min(full, budget_s)


@dataclass(frozen=True)
class Plan:
    """The plan of a search of one problem or several."""

    name: str
    card: Device
    problems: tuple[ProblemPlan, ...]
    seconds: float
    """Wall time of the whole search, spread over the GPUs."""
    basis: str
    joint: bool
    common: int | None
    """Number of configs that are feasible for all problems, of a joint search; None if unknown."""
    replays: bool = False
    """True if the command itself replays recorded measurements: there is no GPU here, and no card was named."""

    @property
    def lacking(self) -> list[str]:
        """Reasons for which the search would find no config to measure."""
        lacking = [plan.refused for plan in self.problems if plan.feasible == 0]
        nothing_common = [f"no config is feasible for all {len(self.problems)} problems"]
        return lacking or (nothing_common if self.joint and self.common == 0 else [])

    def as_json(self) -> dict[str, Any]:
        """Return the document of `tuner search --dry-run --json`."""
        return {
            "device": self.card.id,
            "problems": self.name,
            "seconds": round(self.seconds, 1),
            "basis": self.basis,
            "replays": self.replays,
            **({"feasible_for_all": self.common} if self.joint else {}),
            "rows": [plan.as_json() for plan in self.problems],
        }


def plan_search(
    suite: Suite,
    entries: Iterable[Entry],
    effort: Effort,
    store: Store | None,
    *,
    gpus: Sequence[int],
    device_id: str | None,
    joint: bool = False,
    compared: bool | None = None,
) -> Plan:
    """Return the plan of a search, or of a bench.

    Args:
        entries: those of the suite, perhaps wrapped by a progress display: a gemm's rules take half a second each.
        gpus: the GPUs here that it would measure on.
        device_id: the card that is meant without a GPU here; None is the one that a replay would take.
        joint: whether one config is searched for all problems.
        compared: of a bench, whether it first searches problems without an answer.

    Raises:
        NoDevice: no card is named, and the problems were not recorded.
        UnknownName: no card has this id.
    """
    runs = [] if store is None else store.runs(SETTINGS.newest_runs)
    card = device.describe(gpus[0]) if gpus else _card_elsewhere(suite, device_id, runs)
    pace = Pace.on(card, runs)
    plans = [_plan(entry, effort, card, pace, store, runs, here=bool(gpus)) for entry in entries]
    spaces = [plan.space for plan in plans if plan.space is not None]
    shared = len(common(spaces)) if joint and len(spaces) == len(plans) else None
    if shared is not None:
        plans = [plan.jointly(shared, effort.budget, pace) for plan in plans]
    if compared is not None:
        plans = [plan.compared(compared, pace) for plan in plans]
    seconds = sum(plan.seconds for plan in plans) / max(1, len(gpus))
    seconds += pace.start_s if seconds else 0.0
    replays = not gpus and device_id is None
    return Plan(suite.name, card, tuple(plans), seconds, pace.basis, joint, shared, replays)


def _card_elsewhere(suite: Suite, device_id: str | None, runs: Sequence[StoredRun]) -> Device:
    """Return the card that is meant if there is no GPU here: the named one, else the one that a replay would take."""
    if device_id is None:
        found = [spaces for entry in suite.entries if (spaces := recorded.of_problem(entry.problem))]
        if not found:
            raise NoDevice(f"there is no GPU here, and {suite.name} was not recorded; name a card with --device")
        return (recorded.on_one_card(found) or found[0])[0].device
    known = {run.provenance.device.id: run.provenance.device for run in runs} | recorded.devices()
    if device_id not in known:
        raise UnknownName(f"no device is known as {device_id[:80]!r}; known are {', '.join(sorted(known))}")
    return known[device_id]


def _plan(
    entry: Entry,
    effort: Effort,
    card: Device,
    pace: Pace,
    store: Store | None,
    runs: Sequence[StoredRun],
    *,
    here: bool,
) -> ProblemPlan:
    source, definition, space = _feasible(entry, card)
    size = None if space is None else len(space)
    problem, budget = entry.problem, effort.budget
    answers = [] if store is None else store.answers(op=problem.op, device=card.id)
    measured = [stored for stored in answers if not stored.provenance.recorded]
    pin = None if store is None else store.pins.of_problem(problem, card.id)
    is_pinned = pin is not None and pin.recorded is None
    if space is not None:
        measured = feasible_answers(measured, entry.signature, space)
    query = Query(problem, source=source, definition=definition)
    if here:
        query = Query.for_environment(problem, device.environment(), source, definition=definition)
    found = Table(card.id, measured).find(query)
    alone = () if effort.force else _runs_alone(problem, card, source, definition, runs)
    known, counted = next((_known_after(run, space) for run in alone), (0, 0))
    most = [limit for limit in (budget.trials and budget.trials - counted, size and size - known) if limit is not None]
    trials = 0 if is_pinned or effort.accepts(found, space) else max(0, min(most, default=0))
    combinations = prod(len(knob.choices) for knob in entry.signature.knobs)
    return ProblemPlan(
        *(problem, combinations, space, found.match, known, trials, pace.seconds(trials, budget.seconds)),
        refused=none_feasible(catalog.resolve(entry.reference), problem, card.name, card.limits) if size == 0 else "",
    )


def _feasible(entry: Entry, card: Device) -> tuple[str | None, str | None, Space | None]:
    """Return source hash, definition hash and feasible configs, of the kernel's code or of a recorded space."""
    try:
        kernel = catalog.resolve(entry.reference)
    except NoDevice:
        spaces = [space for space in recorded.of_problem(entry.problem) if space.device == card]
        known = ((space.source, None, ListedSpace([m.config for m in space.measurements])) for space in spaces)
        return next(known, (None, None, None))
    return kernel.source, kernel.definition, FeasibleSpace.of(kernel, entry.problem, card.limits)


def _runs_alone(
    problem: Problem, card: Device, source: str | None, definition: str | None, runs: Sequence[StoredRun]
) -> Iterator[StoredRun]:
    """Yield the runs of the problem alone whose measurements a search would take over, the newest first."""
    for run in runs:
        made = run.provenance
        alone = run.problem == problem and "joint" not in run.settings
        defined = not definition or made.definition in ("", definition)
        if alone and defined and (made.device, made.source, made.recorded) == (card, source, None):
            yield run


def _known_after(run: StoredRun, space: Collection[Config] | None) -> tuple[int, int]:
    """Return the number of configs known at the end of a run, and of those that count towards a search's trials."""
    known = run.trials + run.settings.get("known", 0)
    free = run.settings.get("known_jointly", 0) + run.settings.get("known_elsewhere", 0)
    return known - run.settings.get("known_jointly", 0), known - free if same_space(run.settings, space) else 0
