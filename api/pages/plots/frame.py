"""The frame of a plot: its title and description, its size, its axes and its legend."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from markupsafe import Markup

from tuner.api.pages.plots.scales import Scale, tick_texts
from tuner.api.pages.plots.svg import content, element, joined, words

_KEY = re.compile(r"[a-z][a-z0-9-]*")
WIDTHS = (120, 320, 540, 720, 960)
"""Widths of plots, in units of 1 px at the natural size; plots.css has a class for each."""
_WIDE, _USUAL = 9.0, 7.1
"""Widths of a capital and of another character of 12 px in a wide font, in px."""


@dataclass(frozen=True)
class Heading:
    """Name and description of a plot, for readers and for screen readers."""

    key: str
    """Name that no other plot on the page has: lower-case letters, digits and dashes."""
    title: str
    description: str
    """One or two sentences that say what the plot shows."""

    def __post_init__(self) -> None:
        if not _KEY.fullmatch(self.key):
            raise ValueError(f"a plot's key has lower-case letters, digits and dashes, and is not {self.key!r}")


@dataclass(frozen=True)
class Box:
    """The part of a plot in which marks stand, in px."""

    left: float
    top: float
    right: float
    bottom: float


def figure(heading: Heading, kind: str, size: tuple[int, float], body: Iterable[str]) -> Markup:
    """Return a plot as SVG in an element that scrolls on narrow screens.

    Args:
        kind: Second class of the SVG, such as `bars`.
        size: Width, one of `WIDTHS`, and height in px.
        body: Marks, labels and axes.
    """
    width, height = size
    inner = joined(body)
    name, about = f"{heading.key}-title", f"{heading.key}-desc"
    svg = element(
        "svg",
        element("title", heading.title, id=name),
        element("desc", heading.description, id=about),
        inner,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width} {height:.0f}",
        class_=f"plot plot-{kind} plot-w{width}",
        role="group" if "<a " in inner else "img",
        aria_labelledby=f"{name} {about}",
    )
    if width <= 320:
        return svg
    return element("div", svg, class_="plot-scroll", tabindex="0", role="group", aria_label=heading.title)


def nothing(sentence: str) -> Markup:
    """Return a sentence in place of a plot without data."""
    return Markup('<p class="plot-empty">{}</p>').format(Markup(content(sentence)))


def value_axis(scale: Scale, box: Box, label: str, most: int = 5, unit: str = "") -> list[Markup]:
    """Return the grid lines of a vertical scale with their values, and its label above them."""
    parts = [words(0, box.top - 12, label, "axis")] if label else []
    ticks = scale.ticks(most)
    for tick, text in zip(ticks, tick_texts(ticks), strict=True):
        y = scale.at(tick)
        parts.append(element("path", d=f"M{box.left:.1f} {y:.1f}H{box.right:.1f}", class_="grid"))
        parts.append(words(box.left - 8, y + 4, text + unit, "tick", "end"))
    return parts


def along_axis(scale: Scale, box: Box, label: str, most: int = 6) -> list[Markup]:
    """Return the values below a horizontal scale, and its label at the right end."""
    parts = []
    ticks = scale.ticks(most)
    for tick, text in zip(ticks, tick_texts(ticks), strict=True):
        x = scale.at(tick)
        parts.append(element("path", d=f"M{x:.1f} {box.bottom:.1f}v5", class_="grid"))
        parts.append(words(x, box.bottom + 19, text, "tick", "middle"))
    if label:
        parts.append(words(box.right, box.bottom + 38, label, "axis", "end"))
    return parts


def text_width(text: str) -> float:
    """Return the estimated width of a text of 12 px, in px."""
    wide = sum(character.isupper() or character in "=mwMW@%" for character in text)
    return _WIDE * wide + _USUAL * (len(text) - wide)
