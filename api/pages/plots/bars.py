"""Horizontal bars with direct labels, such as the importance of knobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from markupsafe import Markup

from tuner.api.pages.plots.frame import Heading, figure, nothing, text_width
from tuner.api.pages.plots.scales import short
from tuner.api.pages.plots.svg import cut, element, link, title, words


@dataclass(frozen=True)
class Bar:
    """One bar."""

    label: str
    value: float
    """At least 0."""
    note: str = ""
    """Further text of the tooltip."""
    href: str = ""
    css: str = ""
    """Class of the colour, `c0` to `c7`; empty for the accent."""


_ROW = 28.0
_THICK = 14.0


def bars(heading: Heading, values: Sequence[Bar], unit: str = "%", most: int = 24) -> Markup:
    """Return one bar for each value, in the given order.

    Args:
        unit: `%` shows shares as percent; any other text stands after the number.
        most: Bars shown; a sentence below counts the others.
    """
    values = [bar for bar in values if isfinite(bar.value)]
    shown = values[:most]
    if not shown:
        return nothing("There is nothing to compare.")
    left = min(max(text_width(cut(bar.label, 18)) for bar in shown) + 14, 150)
    right = 320 - 62
    longest = max(max(bar.value for bar in shown), 1e-12)
    body = []
    for place, bar in enumerate(shown):
        y = 6 + place * _ROW
        length = max((right - left) * bar.value / longest, 1.5)
        text = _percent(bar.value) if unit == "%" else f"{short(bar.value)}{unit}"
        tooltip = "\n".join(filter(None, (f"{bar.label}: {text}", bar.note)))
        body.append(
            link(
                bar.href,
                title(tooltip),
                words(left - 10, y + _THICK / 2 + 4.5, cut(bar.label, 18), anchor="end"),
                element("rect", x=left, y=y, width=length, height=_THICK, rx=2, class_=bar.css or None),
                words(left + length + 7, y + _THICK / 2 + 4.5, text, "tick"),
                class_="bar",
            )
        )
    height = 6 + len(shown) * _ROW
    if len(values) > most:
        body.append(words(left, height + 12, f"and {len(values) - most:,} more", "note"))
        height += 22
    return figure(heading, "bars", (320, height), body)


def _percent(share: float) -> str:
    return "< 1%" if 0 < share < 0.005 else f"{share:.0%}"
