"""The plots of the evidence for an answer."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from tuner.api.pages.evidence import Evidence, LadderRow
from tuner.api.pages.plots import (
    Bar,
    Heading,
    Landscape,
    Limits,
    RatePoint,
    Rung,
    bars,
    intervals,
    live_plot,
    parallel_coordinates,
    roofline,
    slices,
)
from tuner.api.pages.plots.parallel import ParallelSettings
from tuner.records import VENDOR, StoredAnswer
from tuner.report.explanation import Contender
from tuner.report.text import short
from tuner.report.vendor import role_text


@dataclass(frozen=True)
class PlotSettings:
    """Sizes of the plots."""

    drawn: int = 300
    """Configs that are drawn as lines, at most."""
    scripted: int = 500
    """Number of configs above which a script fetches and draws all of them."""
    name_length: int = 72
    """Characters of a contender's name in a plot, at most, unless its knobs need more to tell it from the others."""


SETTINGS = PlotSettings()
_KINDS = ("answer", "default", "vendor", "tie")
"""Roles of contenders with a look of their own in plots, the most telling first."""


@dataclass(frozen=True)
class Plots:
    """The plots of an answer; each is None if there is nothing to draw."""

    ladder: Markup | None
    lines: Markup | None
    all_configs: Markup | None
    """Drawn by a script."""
    slices: Markup | None
    importance: Markup | None
    roofline: Markup | None


def plots_of(found: Evidence, stored: StoredAnswer, address: str) -> Plots:
    """Return the plots of an answer.

    Args:
        address: Address of the JSON of all configs that ran; empty if there is none.
    """
    has_several = len(found.landscape.tried) > 1
    return Plots(
        ladder=_ladder(found),
        lines=_lines(found.landscape) if has_several else None,
        all_configs=_all_configs(found.landscape, address),
        slices=_slices(found.landscape) if has_several else None,
        importance=_importance(found),
        roofline=_roofline(found, stored),
    )


def _ladder(found: Evidence) -> Markup | None:
    """Return the intervals of the contenders; None with fewer than two."""
    rows = found.ladder
    if len(rows) < 2:
        return None
    knobs = _shown_knobs(rows)
    rungs = [
        Rung(_name_of(row, knobs), row.contender.latency_us, row.contender.interval_us, _kind(row.contender))
        for row in rows
    ]
    about = "Median latency of each contender in the interleaved comparison with its 95 % interval, fastest first."
    return intervals(Heading("ladder", "Contenders of the interleaved comparison", about), rungs)


def _name_of(row: LadderRow, knobs: Collection[str]) -> str:
    """Return a contender's number in the table and its choices of these knobs, or its roles if it has no config."""
    choices = [f"{knob}={value}" for knob, value in row.knobs if knob in knobs]
    return " ".join([str(row.number), *(choices or row.roles)])


def _shown_knobs(rows: Sequence[LadderRow]) -> list[str]:
    """Return knobs by which no two of the configs are alike, and as many others as a plot has room for."""
    configs = [dict(row.knobs) for row in rows if row.knobs]
    names = list(dict.fromkeys(name for config in configs for name in config))

    def distinct(knobs: Iterable[str]) -> int:
        return len({tuple(config.get(knob) for knob in knobs) for config in configs})

    shown = list[str]()
    while distinct(shown) < distinct(names):
        shown.append(max(names, key=lambda name: distinct([*shown, name])))
    for name in names:
        more = {*shown, name}
        if name not in shown and max(len(_name_of(row, more)) for row in rows) <= SETTINGS.name_length:
            shown.append(name)
    return shown


def _kind(contender: Contender) -> str:
    return next((kind for kind in _KINDS if kind in contender.roles), "")


def _lines(found: Landscape) -> Markup:
    about = "Each line is a config: its choice of each knob, and its latency. The fastest are drawn above the others."
    heading = Heading("landscape", "Configs by knob and latency", about)
    return parallel_coordinates(heading, found, ParallelSettings(most_lines=SETTINGS.drawn))


def _all_configs(found: Landscape, address: str) -> Markup | None:
    """Return the plot of all configs that a script draws; None if they are few, or there is no address."""
    if not address or len(found.tried) <= SETTINGS.scripted:
        return None
    heading = Heading("all", "All configs by rank or by one knob", "Latency of each config that ran.")
    without = Markup('<p class="plot-empty">This plot needs JavaScript. The one above has the fastest configs.</p>')
    return live_plot(heading, address, without, f"{len(found.tried):,} configs that ran")


def _slices(found: Landscape) -> Markup:
    about = "For each knob, the latencies of the configs by choice. A circle marks the fastest, a tick the median."
    return slices(Heading("slices", "Latency by choice of each knob", about), found)


def _importance(found: Evidence) -> Markup | None:
    """Return the share of each knob in what makes a config fast; None if it is not known."""
    if found.explanation is None or not found.explanation.importance:
        return None
    shares = [Bar(name, share) for name, share in found.explanation.importance.items()]
    return bars(
        Heading("importance", "Importance of each knob", "Share of each knob in being among the fastest tenth."), shares
    )


def _roofline(found: Evidence, stored: StoredAnswer) -> Markup | None:
    """Return the answer, the default and the vendor below the limits of the card; None if these are not known."""
    answer, limits, explained = stored.answer, found.limits, found.explanation
    if limits is None or explained is None or answer.latency_us is None or found.roofline_missing:
        return None
    arithmetic = limits.arithmetic(answer.problem)
    names = {"answer": "answer", "default": "default", "vendor": role_text(VENDOR, explained.run)}
    drawn: dict[str, Contender] = {}
    for role in names:
        one = next((each for each in explained.ladder if role in each.roles), None)
        if one is not None and one not in drawn.values():
            drawn[role] = one
    points = [
        RatePoint(names[role], role, answer.flops, answer.bytes, each.latency_us)  # type: ignore[arg-type]
        for role, each in drawn.items()
    ] or [RatePoint("answer", "answer", answer.flops, answer.bytes, answer.latency_us)]
    about = f"Rates on {short(answer.problem)} below the card's measured limits of copies and of {arithmetic} matmuls."
    card = Limits(limits.copy_gb_per_s, limits.tflops.get(arithmetic), arithmetic)
    return roofline(Heading("roofline", "Roofline", about), card, points)
