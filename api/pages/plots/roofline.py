"""A roofline: the card's limits of memory and arithmetic, and the rates that configs reach below them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Literal

from markupsafe import Markup

from tuner.api.pages.plots.bars import Bar, bars
from tuner.api.pages.plots.frame import Box, Heading, along_axis, figure, nothing, text_width, value_axis
from tuner.api.pages.plots.scales import Scale, log_scale, short, spread
from tuner.api.pages.plots.svg import cut, element, link, title, words

PointKind = Literal["answer", "tie", "default", "vendor"]
_SHAPES: dict[PointKind, str] = {
    "answer": "M-5.5 0a5.5 5.5 0 1 0 11 0a5.5 5.5 0 1 0-11 0",
    "tie": "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0",
    "default": "M-4.5-4.5h9v9h-9z",
    "vendor": "M0-6l6 6l-6 6l-6-6z",
}
"""Outline of each kind around its point; the shapes differ, so that no kind depends on its colour."""


@dataclass(frozen=True)
class Limits:
    """Limits of a card for one kind of arithmetic."""

    copy_gb_per_s: float
    tflops: float | None
    """None if the rate of the dtype is not known."""
    rate_label: str = ""
    """Name of the arithmetic, such as `bf16`."""


@dataclass(frozen=True)
class RatePoint:
    """One config, or the vendor, on one problem."""

    name: str
    kind: PointKind
    flops: float
    bytes: float
    latency_us: float
    href: str = ""

    @property
    def intensity(self) -> float:
        """Operations for each byte moved."""
        return self.flops / self.bytes

    @property
    def tflops(self) -> float:
        return self.flops / self.latency_us / 1e6

    @property
    def gb_per_s(self) -> float:
        return self.bytes / self.latency_us / 1e3


def roofline(heading: Heading, limits: Limits, points: Sequence[RatePoint]) -> Markup:
    """Return the roofline with the points; bars of the bandwidth reached if the problem has no arithmetic."""
    usable = [point for point in points if isfinite(point.latency_us) and point.latency_us > 0 and point.bytes > 0]
    if not usable:
        return nothing("No latency is known that could be compared with the card's limits.")
    if limits.tflops is None or any(point.flops <= 0 for point in usable):
        return _bandwidths(heading, limits, usable)
    ridge = limits.tflops * 1e3 / limits.copy_gb_per_s
    intensities = [point.intensity for point in usable]
    box = Box(58, 40, 540 - 16, 316)
    x = log_scale(
        [*intensities, ridge / 16, ridge * 8, min(intensities) / 3, max(intensities) * 3], box.left, box.right, 0
    )
    lowest = min(*(point.tflops for point in usable), limits.tflops / 30)
    y = log_scale([lowest, limits.tflops * 1.6], box.bottom, box.top, 0.02)
    body = [
        *value_axis(y, box, "TFLOP/s", 6),
        *along_axis(x, box, "operations per byte", 6),
        *_roof(limits, ridge, x, y, box),
        *_points(usable, x, y, box, limits),
    ]
    return figure(heading, "roofline", (540, box.bottom + 50), body)


def _roof(limits: Limits, ridge: float, x: Scale, y: Scale, box: Box) -> list[Markup]:
    peak = limits.tflops or 0.0
    slope = limits.copy_gb_per_s / 1e3  # TFLOP/s for each operation per byte
    first = max(x.low, y.low / slope)
    path = f"M{x.at(first):.1f} {y.at(first * slope):.1f}L{x.at(ridge):.1f} {y.at(peak):.1f}H{box.right:.1f}"
    parts = [element("path", d=path, class_="roof")]
    label = f"{short(peak)} TFLOP/s {limits.rate_label}".strip()
    parts.append(words(box.right, y.at(peak) - 8, label, "note", "end"))
    copy = f"{short(limits.copy_gb_per_s / 1e3)} TB/s"
    run, rise = x.at(ridge) - x.at(ridge / 4), y.at(peak / 4) - y.at(peak)
    at = ridge / 5
    if at > first:
        place = (x.at(at) - 10, y.at(at * slope) - 8)
        parts.append(words(*place, copy, "note", "end"))
    elif run and rise:
        parts.append(words(x.at(first) + 4, y.at(first * slope) - 10, copy, "note"))
    return parts


def _points(points: Sequence[RatePoint], x: Scale, y: Scale, box: Box, limits: Limits) -> list[Markup]:
    """Return the points, the answer above the others, each with its name beside it."""
    order = sorted(points, key=lambda point: (point.kind == "answer", point.kind != "tie"))
    heights = spread([y.at(point.tflops) for point in order], 17, box.top + 14, box.bottom - 4)
    marks, labels = [], []
    for point, height in zip(order, heights, strict=True):
        px, py = x.at(point.intensity), y.at(point.tflops)
        share = point.latency_us and _share(point, limits)
        text = f"{point.name}\n{short(point.tflops)} TFLOP/s, {short(point.gb_per_s)} GB/s\n{share:.0%} of the roofline"
        shape = element(
            "path", d=_SHAPES[point.kind], transform=f"translate({px:.1f} {py:.1f})", class_=f"point {point.kind}"
        )
        marks.append(link(point.href, title(text), shape))
        name = cut(point.name, 26)
        is_right = px + 16 + text_width(name) > box.right
        side = -1 if is_right else 1
        labels.append(
            element("path", d=f"M{px + 7 * side:.1f} {py:.1f}L{px + 13 * side:.1f} {height:.1f}", class_="lead")
        )
        css = "best halo" if point.kind == "answer" else "halo"
        labels.append(words(px + 16 * side, height + 4, name, css, "end" if is_right else None))
    return [*labels, *marks]


def _share(point: RatePoint, limits: Limits) -> float:
    compute = point.flops / limits.tflops / 1e6 if limits.tflops else 0.0
    return max(compute, point.bytes / limits.copy_gb_per_s / 1e3) / point.latency_us


def _bandwidths(heading: Heading, limits: Limits, points: Sequence[RatePoint]) -> Markup:
    colours = {"answer": "", "tie": "c0", "default": "c1", "vendor": "c2"}
    note = f"of {short(limits.copy_gb_per_s)} GB/s"
    shown = [
        Bar(
            point.name,
            point.gb_per_s,
            f"{point.gb_per_s / limits.copy_gb_per_s:.0%} {note}",
            point.href,
            colours[point.kind],
        )
        for point in points
    ]
    return bars(heading, [*shown, Bar("copy limit", limits.copy_gb_per_s, "measured on this card", css="c7")], " GB/s")
