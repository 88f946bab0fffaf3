"""Ratios of two sides, one for each problem, sorted: which problems became faster, which slower, and by how much."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from markupsafe import Markup

from tuner.api.pages.compared import Verdict, verdict_of
from tuner.api.pages.plots.frame import Box, Heading, figure, nothing, text_width
from tuner.api.pages.plots.scales import Scale, log_scale, ratio_text, spread
from tuner.api.pages.plots.svg import cut, element, link, title, words
from tuner.records import Interval


@dataclass(frozen=True)
class Ratio:
    """One problem on both sides."""

    label: str
    ratio: float
    """Latency of the first side divided by that of the second: above 1, the second is faster."""
    interval: Interval | None = None
    href: str = ""

    @property
    def verdict(self) -> Verdict:
        """The second side compared with the first: faster, slower or the same."""
        return verdict_of(self.ratio, self.interval)


@dataclass(frozen=True)
class RatioSettings:
    """Limits and sizes of a plot of ratios, in px."""

    most_points: int = 500
    named: int = 3
    """Number of problems that are named at each end."""
    bottom: float = 300


SETTINGS = RatioSettings()
_SHAPES = {
    Verdict.FASTER: "m0-4.5l4.5 8h-9z",
    Verdict.SLOWER: "m0 4.5l4.5-8h-9z",
    Verdict.SAME: "m-2.5 0a2.5 2.5 0 1 0 5 0a2.5 2.5 0 1 0-5 0",
}
"""Outline of each mark around its point."""


def scatter_ratio(heading: Heading, ratios: Sequence[Ratio], settings: RatioSettings = SETTINGS) -> Markup:
    """Return one point for each problem, slowest first. Of more than `most_points`, points are left out evenly."""
    usable = sorted((r for r in ratios if isfinite(r.ratio) and r.ratio > 0), key=lambda r: r.ratio)
    if not usable:
        return nothing("No problem has a latency on both sides.")
    count = min(len(usable), settings.most_points)
    shown = [usable[round(index * (len(usable) - 1) / max(count - 1, 1))] for index in range(count)]
    box = Box(58, 40, 720 - 16, settings.bottom)
    y = log_scale([*(r.ratio for r in shown), 1 / 1.05, 1.05], box.bottom, box.top, 0.06)
    across = (box.right - box.left - 24) / max(count - 1, 1)
    xs = [box.left + 12 + across * place for place in range(count)]
    body = [*_axis(y, box), *_counts(usable, box)]
    named = set(_named(shown, settings))
    points = [_point(r, x, y) for r, x in zip(shown, xs, strict=True)]
    labels = _labels([(shown[place], xs[place], y.at(shown[place].ratio)) for place in sorted(named)], box)
    return figure(heading, "ratios", (720, box.bottom + 44), [*body, *labels, *points])


def _axis(y: Scale, box: Box) -> list[Markup]:
    parts = [words(0, box.top - 22, "ratio", "axis")]
    one = y.at(1.0)
    for tick in y.ticks(6):
        if abs(y.at(tick) - one) > 12:
            parts.append(element("path", d=f"M{box.left:.1f} {y.at(tick):.1f}H{box.right:.1f}", class_="grid"))
            parts.append(words(box.left - 8, y.at(tick) + 4, ratio_text(tick), "tick", "end"))
    parts.append(element("path", d=f"M{box.left:.1f} {one:.1f}H{box.right:.1f}", class_="one"))
    parts.append(words(box.left - 8, one + 4, "1x", "strong", "end"))
    return parts


def _counts(usable: Sequence[Ratio], box: Box) -> list[Markup]:
    """Return the numbers of slower, unchanged and faster problems below the plot."""
    counts = Counter(r.verdict for r in usable)
    texts = (
        (box.left, f"▼ {counts[Verdict.SLOWER]:,} slower", "slower", None),
        ((box.left + box.right) / 2, f"{counts[Verdict.SAME]:,} same", "tick", "middle"),
        (box.right, f"{counts[Verdict.FASTER]:,} faster ▲", "faster", "end"),
    )
    return [words(x, box.bottom + 30, text, css, anchor) for x, text, css, anchor in texts]


def _point(ratio: Ratio, x: float, y: Scale) -> Markup:
    at, shape = y.at(ratio.ratio), _SHAPES[ratio.verdict]
    parts = [title(_tooltip(ratio))]
    if ratio.interval:
        low, high = (y.at(bound) for bound in ratio.interval)
        parts.append(element("path", d=f"M{x:.1f} {low:.1f}V{high:.1f}", class_="interval"))
    parts.append(element("path", d=f"M{x:.1f} {at:.1f}{shape}", class_="mark"))
    return link(ratio.href, *parts, class_=str(ratio.verdict))


def _tooltip(ratio: Ratio) -> str:
    interval = f", {ratio_text(ratio.interval[0])} to {ratio_text(ratio.interval[1])} at 95 %" if ratio.interval else ""
    return f"{ratio.label}\n{ratio_text(ratio.ratio)}{interval}"


def _named(shown: Sequence[Ratio], settings: RatioSettings) -> list[int]:
    """Return the places of the problems that changed most at both ends."""
    count = len(shown)
    slow = [place for place in range(min(settings.named, count)) if shown[place].verdict is Verdict.SLOWER]
    fast = [place for place in range(max(count - settings.named, 0), count) if shown[place].verdict is Verdict.FASTER]
    return slow + fast


def _labels(named: Sequence[tuple[Ratio, float, float]], box: Box) -> list[Markup]:
    """Return the names of the slowest to the right of their points, and of the fastest to the left."""
    parts = []
    for is_fast in (False, True):
        side = [each for each in named if (each[0].ratio > 1) == is_fast]
        if not side:
            continue
        ys, xs = [y for _, _, y in side], [x for _, x, _ in side]
        # between the curve and the edge of the plot no other point stands
        low, high = (box.top - 26, max(ys) - 8) if is_fast else (min(ys) + 8, box.bottom + 8)
        heights = spread(ys, 17, low, high)
        way = -1 if is_fast else 1
        at = (min(xs) if is_fast else max(xs)) + 16 * way
        for (ratio, x, y), height in zip(side, heights, strict=True):
            name = cut(ratio.label, 38)
            if box.left < at + way * text_width(name) < box.right:
                line = f"M{x + 6 * way:.1f} {y:.1f}L{at - 3 * way:.1f} {height:.1f}"
                parts.append(element("path", d=line, class_="lead"))
                parts.append(words(at, height + 4, name, "note halo", "end" if is_fast else None))
    return parts
