"""A ladder of contenders: the median of each with its confidence interval, fastest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, isfinite, log10

from markupsafe import Markup

from tuner.api.pages.plots.frame import Box, Heading, along_axis, figure, nothing, text_width
from tuner.api.pages.plots.scales import linear_scale, log_scale, short
from tuner.api.pages.plots.svg import cut, element, link, title, words
from tuner.records import Interval


@dataclass(frozen=True)
class Rung:
    """One contender."""

    name: str
    median_us: float
    interval_us: Interval | None
    kind: str = ""
    """`answer`, `tie`, `default` or `vendor`, whose name says which; empty for any other contender."""
    href: str = ""


@dataclass(frozen=True)
class IntervalSettings:
    """Limits of a ladder."""

    most: int = 24
    """Contenders that are shown; a sentence counts the others."""
    name: int = 72
    """Longest name, in characters."""
    narrow: float = 300.0
    """Width of the longest name, in px, up to which the plot is 720 px wide; else it is 960 px wide."""


SETTINGS = IntervalSettings()
_ROW = 28.0
_BOLD = 1.1
"""Width of bold text over that of regular text."""


def intervals(heading: Heading, rungs: Sequence[Rung], settings: IntervalSettings = SETTINGS) -> Markup:
    """Return one row for each contender, fastest first; a band shows the interval of the answer."""
    known = [rung for rung in rungs if isfinite(rung.median_us) and rung.median_us > 0]
    ordered = sorted(known, key=lambda rung: rung.median_us)[: settings.most]
    if not ordered:
        return nothing("No rounds of an interleaved comparison are stored.")
    longest = max(text_width(cut(rung.name, settings.name)) * (_BOLD if _css(rung) else 1) for rung in ordered)
    width = 720 if longest <= settings.narrow else 960
    box = Box(longest + 18, 8, width - 118, 8 + len(ordered) * _ROW)
    bounds = [bound for rung in ordered for bound in (rung.median_us, *(rung.interval_us or ()))]
    is_wide, digits = max(bounds) > 4 * min(bounds), 5 if max(bounds) < 1.1 * min(bounds) else 3
    decimals = None if is_wide else max(0, digits - 1 - floor(log10(max(bounds))))
    margin = (max(bounds) - min(bounds)) * 0.04 or max(bounds) * 0.01
    ends = (box.left, box.right)
    scale = log_scale(bounds, *ends) if is_wide else linear_scale([min(bounds) - margin, max(bounds) + margin], *ends)
    body: list[Markup] = []
    answer = next((rung for rung in ordered if rung.kind == "answer"), None)
    if answer and answer.interval_us:
        low, high = (scale.at(bound) for bound in answer.interval_us)
        place = {"x": low, "y": box.top, "width": max(high - low, 1), "height": box.bottom - box.top}
        body.append(element("rect", class_="band", **place))
    body += along_axis(scale, box, "latency, us", 6)
    for place_, rung in enumerate(ordered):
        y = box.top + _ROW * (place_ + 0.5)
        text = f"{short(rung.median_us) if decimals is None else f'{rung.median_us:,.{decimals}f}'} us"
        parts = [title(_tooltip(rung)), words(box.left - 14, y + 4, cut(rung.name, settings.name), _css(rung), "end")]
        if rung.interval_us:
            low, high = (scale.at(bound) for bound in rung.interval_us)
            parts.append(element("path", d=f"M{low:.1f} {y:.1f}H{high:.1f}", class_="interval"))
        parts.append(element("circle", cx=scale.at(rung.median_us), cy=y, r=4.5, class_="point"))
        tail = f"{text} {_kind(rung)}".strip()
        parts.append(words(box.right + 14, y + 4, tail, "best" if rung.kind == "answer" else "tick"))
        body.append(link(rung.href, *parts, class_=f"rung {rung.kind or 'other'}"))
    if len(known) > settings.most:
        body.append(words(0, box.bottom + 38, f"and {len(known) - settings.most:,} slower contenders", "note"))
    return figure(heading, "intervals", (width, box.bottom + 48), body)


def _css(rung: Rung) -> str | None:
    return "strong" if rung.kind == "answer" else None


def _tooltip(rung: Rung) -> str:
    interval = "" if rung.interval_us is None else ", {:,.5g} to {:,.5g} us at 95 %".format(*rung.interval_us)
    return f"{rung.name}\nmedian {rung.median_us:,.5g} us{interval}\n{_kind(rung)}".strip()


def _kind(rung: Rung) -> str:
    """Return the kind of a contender as it is shown; empty if its name says it."""
    return "" if rung.kind in ("vendor", rung.name) else rung.kind
