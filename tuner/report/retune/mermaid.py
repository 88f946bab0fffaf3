"""The plot of one problem's history as a Mermaid chart, which GitHub draws in Markdown.

Syntax: https://mermaid.js.org/syntax/xyChart.html
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tuner.report.retune.points import Point
from tuner.report.retune.svg import BLUE, GREEN, ORANGE

MOST_LABELS = 12
"""Number of points of a chart, the newest: labels of more would overlap."""


def chart(points: Sequence[Point]) -> tuple[str, str]:
    """Return the lines of a chart, and a sentence that names its lines, as a chart has no legend.

    A line needs a value at each point: one of the default or the vendor is left out if one is missing.

    Args:
        points: at least one, oldest first.
    """
    shown = points[-MOST_LABELS:]
    lines = {"answer": [point.latency_us for point in shown]}
    colours = {"answer": ("blue", BLUE), "default": ("orange", ORANGE), "vendor": ("green", GREEN)}
    for name, values in (("default", [p.default_us for p in shown]), ("vendor", [p.vendor_us for p in shown])):
        known = [value for value in values if value is not None]
        if len(known) == len(shown):
            lines[name] = known
    every = [value for values in lines.values() for value in values]
    margin = max(0.1 * (max(every) - min(every)), 0.01 * max(every))
    low, high = max(min(every) - margin, 0.0), max(every) + margin
    palette = ", ".join(colours[name][1] for name in lines)
    text = [
        f"%%{{init: {{'themeVariables': {{'xyChart': {{'plotColorPalette': '{palette}'}}}}}}}}%%",
        "xychart-beta",
        f"    x-axis [{', '.join(_labels(shown))}]",
        f'    y-axis "latency, us" {_number(low)} --> {_number(high)}',
        *(f"    line [{', '.join(map(_number, values))}]" for values in lines.values()),
    ]
    named = [f"{name} ({colours[name][0]})" for name in lines]
    return "\n".join(text), f"Latencies in us, oldest first: {', '.join(named)}."


def _labels(points: Sequence[Point]) -> list[str]:
    """Return the label of each point or its day, numbered if it repeats: points of one label would share a place."""
    seen = Counter[str]()
    labels = []
    for point in points:
        name = point.label or point.at[5:10]
        seen[name] += 1
        labels.append(f'"{name}"' if seen[name] == 1 else f'"{name} ({seen[name]})"')
    return labels


def _number(value: float) -> str:
    """Return a decimal number: the syntax has no exponents and no separators of thousands."""
    return f"{value:.4f}".rstrip("0").rstrip(".")
