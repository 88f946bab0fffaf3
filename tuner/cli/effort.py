"""The options of a search's effort."""

from __future__ import annotations

from typing import Any

import click

from tuner.cli.whole import Whole
from tuner.search import DEFAULT_SAMPLER, SAMPLERS
from tuner.tuning.effort import EFFORTS, SEEDS, Effort, parse_duration

HOW_LONG: list[click.Parameter] = [
    click.Option(
        ["--effort"],
        type=click.Choice(list(EFFORTS)),
        default="normal",
        show_default=True,
        help=f"Number of configs measured for a problem: quick at most {EFFORTS['quick'].trials}, normal at most "
        f"{EFFORTS['normal'].trials}, exhaustive all.",
    ),
    click.Option(
        ["--trials"],
        type=Whole(1),
        metavar="N",
        help="Number of configs to measure for a problem, including those of earlier runs. Replaces the limits of "
        "--effort.",
    ),
    click.Option(
        ["--budget"],
        type=parse_duration,
        metavar="TIME",
        help="Time limit for a problem, such as 30s or 5m.  [default: none]",
    ),
]
HOW_HARD: list[click.Parameter] = [
    *HOW_LONG,
    click.Option(
        ["--seed"],
        type=Whole(SEEDS[0], SEEDS[-1]),
        metavar="N",
        default=0,
        show_default=True,
        help="Seed of the sampler.",
    ),
    click.Option(
        ["--sampler"],
        type=click.Choice(SAMPLERS),
        default=DEFAULT_SAMPLER,
        show_default=True,
        help="Sampler that proposes the configs.",
    ),
    click.Option(
        ["--warm-start/--no-warm-start"],
        default=True,
        help="Measure the answers of near problems first.  [default: warm-start]",
    ),
    click.Option(["--force"], is_flag=True, help="Search and measure again, even if results are stored."),
]


def asked_effort(*, effort: str, trials: int | None, budget: float | None, **others: Any) -> Effort:
    """Return the effort that the values of `HOW_HARD`, or of `HOW_LONG` alone, describe."""
    return Effort.named(effort, trials, budget, **others)
