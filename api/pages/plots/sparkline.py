"""A line as small as a word: the latencies of generations or nights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from markupsafe import Markup

from tuner.api.pages.plots.frame import Heading, figure, nothing
from tuner.api.pages.plots.scales import Scale, log_scale
from tuner.api.pages.plots.svg import element, title


@dataclass(frozen=True)
class Spark:
    """One value of a sparkline."""

    value: float | None
    """None leaves a gap."""
    label: str
    """Name and time of the value, for the tooltip."""
    is_marked: bool = False
    """True draws a ring around it, such as a change of the config."""


def sparkline(heading: Heading, values: Sequence[Spark], height: float = 28) -> Markup:
    """Return the values as a line, oldest first, with a dot at the last one."""
    known = [spark.value for spark in values if spark.value is not None and isfinite(spark.value) and spark.value > 0]
    if not known:
        return nothing("no value")
    scale = log_scale(known, height - 5, 5, 0)
    across = Scale(0, max(len(values) - 1, 1), 5, 115)
    path, marks, is_open = "", [], False
    last = max(place for place, spark in enumerate(values) if spark.value in known)
    for place, spark in enumerate(values):
        if spark.value is None or spark.value not in known:
            is_open = False
            continue
        x, y = across.at(place) if len(values) > 1 else 60.0, scale.at(spark.value)
        path += f"{'L' if is_open else 'M'}{x:.1f} {y:.1f}"
        is_open = True
        css = "last" if place == last else "ring" if spark.is_marked else "hit"
        marks.append(element("circle", title(spark.label), cx=x, cy=y, r=3, class_=css))
    return figure(heading, "spark", (120, height), [element("path", d=path, class_="line"), *marks])
