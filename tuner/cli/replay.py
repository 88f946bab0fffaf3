"""`tuner replay`: scores of samplers on recorded spaces."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from math import isfinite
from pathlib import Path
from time import monotonic
from typing import Any

import click
from rich.box import SIMPLE
from rich.table import Column, Table

from tuner import recorded
from tuner.cli.drawing import needs_plotly, plot_option, write_page
from tuner.cli.grid import Output, print_table
from tuner.cli.ops import json_option
from tuner.cli.text import print_json, say
from tuner.cli.whole import Whole
from tuner.errors import UnknownName
from tuner.exchange import measurements
from tuner.kernels.spec import Config
from tuner.records import Provenance
from tuner.search import DEFAULT_SAMPLER, SAMPLERS, samplers
from tuner.search.replay import AT, ReplaySpace, Score, geometric_gap, replay
from tuner.tuning.effort import require_search
from tuner.tuning.winners import Winner, promising

_ALL = "geometric mean"


def _space(name: str, warm_start: bool) -> ReplaySpace:
    if name in recorded.names():
        space = recorded.load(name)
        return ReplaySpace(name, space.measurements, space.default, _winners(space) if warm_start else ())
    if not Path(name).is_file():
        raise UnknownName(f"no file and no recorded space is {name[:120]!r}; {recorded.suggestion(name)}")
    return ReplaySpace(name, measurements.load(Path(name)))


def _winners(space: recorded.RecordedSpace) -> tuple[Config, ...]:
    """Return the best configs of the op's other recorded spaces that a search of this one would try first."""
    alike = (name for name in recorded.names(space.problem.op) if name != space.name)
    won = [
        Winner(other.problem, Provenance(other.device, other.environment, other.source, other.policy.text), other.best)
        for other in map(recorded.load, alike)
    ]
    here = Provenance(space.device, space.environment, space.source, space.policy.text)
    configs = {measurement.config for measurement in space.measurements}
    return tuple(promising(won, space.signature, space.problem, here, configs))


def _samplers(text: str) -> list[str]:
    return [samplers.checked(name) for name in text.split(",")]


def _replay(
    spaces: tuple[str, ...],
    sampler: list[str],
    seeds: int,
    trials: int,
    batch: int,
    default_first: bool,
    warm_start: bool,
    plot: Path | None,
    as_json: bool,
) -> int:
    require_search()
    scores: list[Score] = []
    for given in spaces or recorded.names():
        space = _space(given, warm_start)
        for name in sampler:
            started = monotonic()
            first = {"default_first": default_first, "warm_start": warm_start}
            scores.append(replay(space, name, seeds=seeds, trials=trials, batch=batch, **first))
            say(f"{space.name}: {name}, {(monotonic() - started) / seeds:.2f} s a run")
    budgets = [at for at in AT if at <= trials] or [trials]
    if plot is not None:
        _write_plot(plot, scores)
    if as_json:
        print_json([_as_json(score, budgets) for score in scores])
    else:
        console = Output()
        console.write("share of the optimum's speed, and gap to its latency, after each number of evaluations")
        print_table(_table(scores, budgets), console)
    return 0


def _as_json(score: Score, budgets: Sequence[int]) -> dict[str, Any]:
    at = {
        str(budget): {
            "share": round(score.share(budget), 4),
            "share_p10": round(score.tenth(budget), 4),
            "gap": round(score.gap(budget), 4) if isfinite(score.gap(budget)) else None,
        }
        for budget in budgets
    }
    return {"space": score.space, "sampler": score.sampler, "seeds": len(score.shares), "at": at}


def _table(scores: Sequence[Score], budgets: Sequence[int]) -> Table:
    numbers = (Column(str(budget), justify="right", no_wrap=True) for budget in budgets)
    table = Table(Column("space"), "sampler", "", *numbers, box=SIMPLE, pad_edge=False)
    for score in scores:
        name = score.space.rpartition("/")[2]
        table.add_row(name, score.sampler, "mean", *(f"{score.share(budget):.4f}" for budget in budgets))
        table.add_row("", "", "p10", *(f"{score.tenth(budget):.4f}" for budget in budgets))
        table.add_row("", "", "gap", *(f"{score.gap(budget):.4f}" for budget in budgets))
    if len({score.space for score in scores}) > 1:
        table.add_section()
        for sampler in dict.fromkeys(score.sampler for score in scores):
            of_it = [score for score in scores if score.sampler == sampler]
            table.add_row(_ALL, sampler, "gap", *(f"{geometric_gap(of_it, budget):.4f}" for budget in budgets))
    return table


def _write_plot(path: Path, scores: Sequence[Score]) -> None:
    with needs_plotly():
        from plotly.subplots import make_subplots

        from tuner.cli.page import BLUE, GREEN, GREY, ORANGE, RED
    colours = dict(zip(SAMPLERS, cycle((BLUE, ORANGE, GREY, GREEN, RED)), strict=False))
    names = list(dict.fromkeys(score.space for score in scores))
    figure = make_subplots(rows=len(names), subplot_titles=[name.rpartition("/")[2] for name in names])
    for score in scores:
        evaluations = list(range(1, 1 + max(map(len, score.shares))))
        figure.add_scatter(
            x=evaluations,
            y=[score.share(count) for count in evaluations],
            name=score.sampler,
            legendgroup=score.sampler,
            showlegend=score.space == names[0],
            line={"color": colours[score.sampler]},
            row=names.index(score.space) + 1,
            col=1,
        )
    figure.update_layout(template="plotly_white", height=320 * len(names), hovermode="x unified")
    figure.update_yaxes(title_text="share of the optimum")
    figure.update_xaxes(title_text="evaluations", row=len(names))
    write_page(path, figure.to_html(include_plotlyjs=True))


command = click.Command(
    "replay",
    callback=_replay,
    params=[
        click.Argument(["spaces"], nargs=-1, metavar="[SPACE]..."),
        click.Option(
            ["--sampler"],
            type=_samplers,
            default=f"{DEFAULT_SAMPLER},random",
            show_default=True,
            metavar="NAME,...",
            help=f"Any of {', '.join(SAMPLERS)}.",
        ),
        click.Option(
            ["--seeds"],
            type=Whole(1, 10_000),
            metavar="N",
            default=10,
            show_default=True,
            help="Number of runs of each sampler.",
        ),
        click.Option(
            ["--trials"],
            type=Whole(1),
            metavar="N",
            default=AT[-1],
            show_default=True,
            help="Number of configs in each run.",
        ),
        click.Option(
            ["--batch"],
            type=Whole(1),
            metavar="N",
            default=8,
            show_default=True,
            help="Number of configs proposed at once.",
        ),
        click.Option(["--default-first"], is_flag=True, help="Measure the default first, as a search does."),
        click.Option(
            ["--warm-start"], is_flag=True, help="Measure the best configs of near spaces of the same op first."
        ),
        plot_option("Draw the mean share of the optimum over the number of evaluations, as an HTML page."),
        json_option,
    ],
    help="Compare samplers on recorded spaces.\n\nSPACE is the name of a recorded space of the package (default: all), "
    "a Kernel Tuner cache file, or a file in the T4 schema.",
)
