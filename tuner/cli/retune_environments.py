"""`tuner retune --compare-environments PYTHON`: stored answers in this environment and in another one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import inf
from time import monotonic

from rich.box import SIMPLE
from rich.markup import escape
from rich.table import Table

from tuner.cli import INTERRUPTED
from tuner.cli.grid import Output, print_table
from tuner.cli.interrupt import Interrupt
from tuner.cli.retune_progress import RetuneProgress
from tuner.cli.text import print_json
from tuner.db.store import Store
from tuner.errors import CHANGED, NoDevice
from tuner.measure import device
from tuner.records import Environment
from tuner.report.retune.escapes import one_line
from tuner.report.text import ratio_text, short, us_text
from tuner.retuning.api import RetunePlan
from tuner.retuning.compared import Change, Compared, environments_text
from tuner.retuning.environments import Subject, compare_environments
from tuner.retuning.other_environment import OtherEnvironment, other_environment
from tuner.tuning.gpu import MeasureOptions
from tuner.tuning.other_gpus import gpu_here

_COLOURS = {Change.SLOWER: "red", Change.BROKEN: "red", Change.FASTER: "green", Change.NOT_MEASURED: "yellow"}
_ERROR = 60
"""Characters of an error in the table."""


def compared_gpu(gpu: str) -> int:
    """Return the number of the GPU on which environments are compared. Raises NoDevice if there is none."""
    index = device.choose(gpu)
    if index is None:
        raise NoDevice(
            f"environments are compared on a GPU, and there is no {gpu_here()}; run it on a machine with one"
        )
    return index


def give_environments(
    python: str, plan: RetunePlan, store: Store, options: MeasureOptions, *, budget_s: float | None, as_json: bool
) -> int:
    """Measure the answers of a plan in both environments, and print how they differ. Nothing is stored.

    Args:
        python: interpreter of the other environment.
        budget_s: seconds after which no further answer is begun.

    Returns:
        4 if an answer is slower or broken there, 1 if one was not measured, else 0.
    """
    index = compared_gpu(options.gpu)
    here = device.environment(index)
    subjects = [Subject.of(chosen, store) for chosen in plan.chosen]
    other = other_environment(python, sorted({subject.entry.reference for subject in subjects}))
    found: list[Compared] = []
    end = None if budget_s is None else monotonic() + budget_s
    with RetuneProgress() as progress, Interrupt() as interrupt, interrupt.token.watched():
        progress.note(_heading(plan.device, here, other))

        def stop() -> bool:
            return interrupt.token() or (end is not None and monotonic() >= end)

        for compared in compare_environments(subjects, other, store, index, options, progress, stop):
            found.append(compared)
            text = one_line(compared.text)
            progress.note(f"{len(found)}/{len(subjects)}  {short(compared.problem)}: {compared.change}, {text}")
    if as_json:
        versions = {"here": here, "there": other.environment}
        print_json({name: vars(each) for name, each in versions.items()} | {"rows": [each.as_json() for each in found]})
    else:
        _print(found, len(subjects))
    if interrupt.received is not None:
        return INTERRUPTED
    changes = {compared.change for compared in found}
    return CHANGED if changes & {Change.SLOWER, Change.BROKEN} else int(Change.NOT_MEASURED in changes)


def _heading(card: str, here: Environment, other: OtherEnvironment) -> str:
    differ = environments_text(here, other.environment) or "the same versions"
    return f"On {card}, here and in {other.python}: {differ}."


def _print(found: Sequence[Compared], selected: int) -> None:
    console = Output()
    table = Table(box=SIMPLE, pad_edge=False)
    for name in ("problem", "there"):
        table.add_column(name)
    for name in ("us here", "us there", "ratio"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in sorted(found, key=lambda compared: compared.ratio or inf, reverse=True):
        sides = [us_text(side.latency_us).removesuffix(" us") if side else "" for side in (each.here, each.there)]
        shown = one_line(each.text, _ERROR) if each.ratio is None else ratio_text(each.ratio, each.interval)
        colour = _COLOURS.get(each.change)
        change = f"[{colour}]{each.change}[/]" if colour else str(each.change)
        table.add_row(escape(short(each.problem)), change, *sides, escape(shown))
    if found:
        print_table(table, console, spare=("us here", "us there"))
    counts = Counter(each.change for each in found)
    left = f", {selected - len(found)} not begun" if len(found) < selected else ""
    console.write(", ".join(f"{count} {change}" for change, count in counts.items()) + left)
