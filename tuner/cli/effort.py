"""How hard a problem is searched: `--effort` and what may take its place."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import click

from tuner.db.store import Store
from tuner.lookup.table import LookupResult
from tuner.search.loop import Budget, Result
from tuner.search.sampler import DEFAULT, SAMPLERS
from tuner.suites.suite import Entry
from tuner.tuning.lanes import Stop
from tuner.tuning.run import TRIALS, duration, run_search, serves
from tuner.tuning.target import Target

EFFORTS = {
    "quick": Budget(60, min_improvement_probability=0.1),
    "normal": Budget(TRIALS, min_improvement_probability=0.05),
    "exhaustive": Budget(),
}
"""What `--effort` stands for; docs/search.md says what each finds. `--trials` takes its place, `--budget` is on top."""
effort_option = click.Option(
    ["--effort"],
    type=click.Choice(list(EFFORTS)),
    default="normal",
    show_default=True,
    help=f"At most {EFFORTS['quick'].trials} configs of a problem, {EFFORTS['normal'].trials}, or all there are.",
)
trials_option = click.Option(
    ["--trials"],
    type=click.IntRange(1),
    metavar="N",
    help="Configs to try of a problem, those of earlier runs included, whatever the effort says.",
)
budget_option = click.Option(["--budget"], type=duration, metavar="TIME", help="Time for a problem, such as 30s or 5m.")
HOW_LONG: list[click.Parameter] = [effort_option, trials_option, budget_option]
HOW_HARD: list[click.Parameter] = [
    *HOW_LONG,
    click.Option(
        ["--seed"], type=click.IntRange(0, 2**32 - 1), metavar="N", default=0, show_default=True, help="Of the sampler."
    ),
    click.Option(["--sampler"], type=click.Choice(SAMPLERS), default=DEFAULT, show_default=True),
    click.Option(
        ["--warm-start/--no-warm-start"],
        default=True,
        help="Whether winners of near problems are tried first.  [default: they are]",
    ),
    click.Option(["--force"], is_flag=True, help="Measure everything again, whatever is stored."),
]


@dataclass(frozen=True)
class Effort:
    """What these options say."""

    budget: Budget
    sampler: str = DEFAULT
    seed: int = 0
    force: bool = False
    """Whether nothing that is stored counts."""
    warm_start: bool = True

    def is_content_with(self, found: LookupResult) -> bool:
        """Whether there is an answer, and the search behind it tried as hard."""
        return not self.force and serves(found, self.budget)

    def search(self, entry: Entry, source: Target, store: Store, stop: Stop | None = None) -> Result:
        """As `run_search` does."""
        return run_search(
            source,
            store,
            entry.signature,
            entry.problem,
            sampler=self.sampler,
            seed=self.seed,
            budget=self.budget,
            reuse=lambda measurement: not self.force,
            warm_start=self.warm_start,
            stop=stop,
        )


def asked_effort(*, effort: str, trials: int | None, budget: float | None, **others: Any) -> Effort:
    """From the values of `HOW_HARD`, or of `HOW_LONG` alone."""
    limits = EFFORTS[effort] if trials is None else Budget(trials)
    return Effort(replace(limits, seconds=budget), **others)
