"""`tuner search --dry-run`: how large the spaces are, what is stored, and how long it would take. Measures nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from statistics import median
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from tuner import catalog
from tuner.cli.bench_rows import short
from tuner.cli.effort import Effort
from tuner.cli.grid import print_table
from tuner.cli.text import counted, print_json
from tuner.db.store import Store
from tuner.errors import NoDevice, UnknownName
from tuner.kernels.spec import Config, Problem
from tuner.lookup.table import Query
from tuner.lookup.table import Table as Answers
from tuner.measure import cores, device, recorded
from tuner.records import Device, StoredRun
from tuner.search.loop import Budget
from tuner.search.space import common, feasible
from tuner.suites.suite import Entry, Suite
from tuner.tuning.session import chosen_gpus

_RUNS = 1000
"""Of the newest runs, how many are looked at for what searches took."""
_START_S, _COMPARISON_S = 5.0, 2.0
"""Where nothing was searched on such a card: a worker's start and a kernel's import, and a duel."""
_COMPILE_S, _MEASURE_S = 0.5, 0.013
"""A config's compile on one core, of which as many run at once as there are; and its time on the card. H200, gemm,
2026-11-28."""


@dataclass(frozen=True)
class Plan:
    """What a search of one problem would mean."""

    problem: Problem
    combinations: int
    space: Sequence[Config] | None
    """What is feasible; None where the kernel's code cannot be loaded here."""
    stored: str
    """The answer's match; `none`."""
    known: int
    """Configs that earlier runs tried."""
    trials: int
    """Configs still to try."""
    seconds: float

    @property
    def feasible(self) -> int | None:
        return None if self.space is None else len(self.space)

    def jointly(self, choice: int, budget: Budget, pace: Pace) -> Plan:
        """The same where one config is to be found for several problems, and there are so many to choose from."""
        trials = min(budget.trials or choice, choice)
        return replace(self, trials=trials, seconds=pace.seconds(trials, budget.seconds))

    def as_json(self) -> dict[str, Any]:
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
    """How fast configs are tried on a card, and how that is known."""

    trial_s: float
    comparison_s: float
    start_s: float
    basis: str

    def seconds(self, trials: int, budget_s: float | None) -> float:
        """Of one problem, without the start."""
        full = trials * self.trial_s + self.comparison_s
        return 0.0 if trials == 0 else full if budget_s is None else min(full, budget_s)


def dry_run(
    suite: Suite,
    effort: Effort,
    store: Store | None,
    *,
    gpu: str,
    device_id: str | None,
    as_json: bool,
    joint: bool = False,
) -> int:
    """Prints the plan of every problem.

    Args:
        joint: whether one config is to be found for all of them.

    Returns:
        The exit code of the search: 1 where no config is valid.
    """
    gpus = [] if device_id is not None else chosen_gpus(gpu)
    runs = [] if store is None else store.runs(_RUNS)
    card = device.describe(gpus[0]) if gpus else _elsewhere(suite, device_id, runs)
    pace = _pace(card, runs)
    entries = counted(suite.entries, "counting configs")  # a gemm's rules take half a second for each problem
    plans = [_plan(entry, effort, card, pace, store, runs, here=bool(gpus)) for entry in entries]
    choice = _choice(plans) if joint else None
    if choice is not None:
        plans = [plan.jointly(choice, effort.budget, pace) for plan in plans]
    seconds = sum(plan.seconds for plan in plans) / max(1, len(gpus))
    seconds += pace.start_s if seconds else 0.0
    lacking = _lacking(plans, choice, card)
    if as_json:
        document: dict[str, Any] = {
            "device": card.id,
            "problems": suite.name,
            "seconds": round(seconds, 1),
            "basis": pace.basis,
        }
        if joint:
            document["feasible_for_all"] = choice
        print_json({**document, "rows": [plan.as_json() for plan in plans]})
    else:
        for_all = f"feasible for all {len(plans)}: {_size_text(choice)}; " if joint else ""
        _print(plans, card, f"{for_all}about {seconds:,.0f} s on {card.name}: {pace.basis}", lacking)
    return 1 if lacking else 0


def _lacking(plans: Sequence[Plan], choice: int | None, card: Device) -> list[str]:
    """Where a search would find no config to try, in its words."""
    without = [plan.problem for plan in plans if plan.feasible == 0]
    lacking = [f"no config of {problem.op} is valid for {problem.text} on {card.name}" for problem in without]
    return lacking or ([f"no config is feasible for all {len(plans)} problems"] if choice == 0 else [])


def _elsewhere(suite: Suite, device_id: str | None, runs: Sequence[StoredRun]) -> Device:
    """The card that is meant where there is none: the one named, else the one that a replay would take."""
    if device_id is None:
        found = [spaces for entry in suite.entries if (spaces := recorded.of_problem(entry.problem))]
        if not found:
            raise NoDevice(f"there is no GPU here, and {suite.name} was not recorded; name a card with --device")
        return (recorded.of_one_card(found) or found[0])[0].device
    known = {run.provenance.device.id: run.provenance.device for run in runs} | recorded.devices()
    if device_id not in known:
        raise UnknownName(f"no device is known as {device_id[:80]!r}; known are {', '.join(sorted(known))}")
    return known[device_id]


def _pace(card: Device, runs: Sequence[StoredRun]) -> Pace:
    """Of the searches that ran on such cards; else a rough model."""
    alike = [run for run in runs if run.provenance.device.id == card.id and not run.provenance.recorded and run.trials]
    alike = [run for run in alike if {"measure", "comparison"} <= run.seconds.keys()]
    if alike:
        trial_s = sum(run.seconds["measure"] for run in alike) / sum(run.trials for run in alike)
        comparison_s = median(run.seconds["comparison"] for run in alike)
        return Pace(trial_s, comparison_s, _START_S, f"by stored searches there: {len(alike)}")
    usable = cores.usable()
    basis = f"a guess, as none was searched there yet: {_COMPILE_S:g} s of a core a config, {usable} cores"
    return Pace(max(_COMPILE_S / usable, _MEASURE_S), _COMPARISON_S, _START_S, basis)


def _plan(
    entry: Entry,
    effort: Effort,
    card: Device,
    pace: Pace,
    store: Store | None,
    runs: Sequence[StoredRun],
    *,
    here: bool,
) -> Plan:
    source, space = _space(entry, card)
    size = None if space is None else len(space)
    problem, budget = entry.problem, effort.budget
    answers = [] if store is None else store.answers(op=problem.op, device=card.id)
    live = Answers(card.id, [stored for stored in answers if not stored.provenance.recorded])
    found = live.find(Query.here(problem, device.environment(), source) if here else Query(problem, source=source))
    known = 0 if effort.force else next(_tried(problem, card, source, runs), 0)
    most = [number for number in (budget.trials, size) if number is not None]
    wanted = min(most, default=0)
    trials = 0 if effort.is_content_with(found) else max(0, wanted - known)
    combinations = prod(len(knob.choices) for knob in entry.signature.knobs)
    return Plan(problem, combinations, space, found.match, known, trials, pace.seconds(trials, budget.seconds))


def _space(entry: Entry, card: Device) -> tuple[str | None, Sequence[Config] | None]:
    """The source and the feasible configs, of the kernel's code or of a recorded space."""
    try:
        kernel = catalog.resolve(entry.reference)
    except NoDevice:
        spaces = [space for space in recorded.of_problem(entry.problem) if space.device == card]
        return next(((space.source, [m.config for m in space.measurements]) for space in spaces), (None, None))
    return kernel.source, list(feasible(kernel, entry.problem, card.limits))


def _choice(plans: Sequence[Plan]) -> int | None:
    """How many configs are feasible for all of them; None where that is not known of one."""
    spaces = [plan.space for plan in plans if plan.space is not None]
    return len(common(spaces)) if len(spaces) == len(plans) else None


def _tried(problem: Problem, card: Device, source: str | None, runs: Sequence[StoredRun]) -> Iterator[int]:
    """Of runs of the problem alone, the newest first, how many configs each knew in the end from such runs."""
    for run in runs:
        made = run.provenance
        its_own = run.problem == problem and "joint" not in run.settings
        if its_own and (made.device, made.source, made.recorded) == (card, source, None):
            yield run.trials + run.settings.get("known", 0) - run.settings.get("known_jointly", 0)


def _size_text(size: int | None) -> str:
    return "unknown" if size is None else f"{size:,}"


def _print(plans: Sequence[Plan], card: Device, closing: str, lacking: Sequence[str]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    table = Table(box=SIMPLE, pad_edge=False)
    table.add_column("problem")
    for name in ("combinations", "feasible", "stored", "to try", "s"):
        table.add_column(name, justify="right", no_wrap=True)
    for plan in plans:
        stored = f"{plan.stored}, {plan.known:,} tried" if plan.known else plan.stored
        numbers = (
            f"{plan.combinations:,}",
            _size_text(plan.feasible),
            stored,
            f"{plan.trials:,}",
            f"{plan.seconds:,.0f}",
        )
        table.add_row(short(plan.problem), *numbers)
    console.print(f"[bold]would search[/] on {card.name}, and measures nothing now")
    print_table(table, console, spare=("combinations",))
    console.print(closing)
    for line in lacking:
        console.print(f"[red]{line}[/]")
