"""Parallel coordinates of tried configs: one line for each config through its choices to its latency."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from tuner.api.pages.plots.frame import Heading, figure, nothing
from tuner.api.pages.plots.landscape import Landscape, Tried, thinned
from tuner.api.pages.plots.scales import Scale, log_scale, short, tick_texts
from tuner.api.pages.plots.svg import cut, element, title, words


@dataclass(frozen=True)
class ParallelSettings:
    """Limits and sizes of a plot of parallel coordinates, in px."""

    most_lines: int = 500
    fastest: int = 5
    """Number of configs that are highlighted."""
    width: int = 960
    top: float = 44
    bottom: float = 396
    band: float = 0.72
    """Share of a choice's room over which its lines are spread, by rank."""


SETTINGS = ParallelSettings()


def parallel_coordinates(heading: Heading, found: Landscape, settings: ParallelSettings = SETTINGS) -> Markup:
    """Return one line for each config, the fastest above the others. More than `most_lines` are thinned."""
    if not found.tried:
        return nothing("No config ran, so there is no landscape to show.")
    shown = thinned(found, settings.most_lines)
    left, right = 40.0, settings.width - 84.0
    gap = (right - left) / max(len(shown.knobs), 1)
    xs = [left + gap * place for place in range(len(shown.knobs))]
    latency = log_scale(found.latencies, settings.bottom, settings.top)
    # the slowest first, so that faster ones are drawn above
    lines = [_line(shown, rank, xs, right, latency, settings) for rank in reversed(range(len(shown.tried)))]
    body = [element("g", *lines, class_="lines"), *_axes(shown, xs, right, latency, settings)]
    return figure(heading, "parallel", (settings.width, settings.bottom + 34), body)


def _line(
    found: Landscape, rank: int, xs: list[float], right: float, latency: Scale, settings: ParallelSettings
) -> Markup:
    config, count = found.tried[rank], len(found.tried)
    share = rank / max(count - 1, 1)
    points = [
        (x, _height(len(knob.choices), place, share, settings))
        for x, knob, place in zip(xs, found.knobs, config.choices, strict=True)
    ]
    points.append((right, latency.at(config.latency_us)))
    path = f"M{points[0][0]:.4g} {points[0][1]:.4g}"
    for (x, y), (next_x, next_y) in pairwise(points):
        bend = (next_x - x) * 0.45
        path += f"C{x + bend:.4g} {y:.4g} {next_x - bend:.4g} {next_y:.4g} {next_x:.4g} {next_y:.4g}"
    return element("path", title(_tooltip(found, config, rank)), d=path, class_=_class(config, rank, share, settings))


def _class(config: Tried, rank: int, share: float, settings: ParallelSettings) -> str:
    if rank < settings.fastest or "answer" in config.marks:
        return "fast"
    if "default" in config.marks:
        return "default"
    return f"q{min(int(share * 4), 3)}"


def _tooltip(found: Landscape, config: Tried, rank: int) -> str:
    marks = f" ({', '.join(config.marks)})" if config.marks else ""
    return f"{short(config.latency_us)} us{marks}\n{found.text(config)}"


def _height(choices: int, place: int, share: float, settings: ParallelSettings) -> float:
    """Return a line's height at a knob: within the room of its choice, the fastest lowest."""
    room = (settings.bottom - settings.top) / choices
    return settings.bottom - room * (place + 0.5) - room * settings.band * (share - 0.5)


def _axes(found: Landscape, xs: list[float], right: float, latency: Scale, settings: ParallelSettings) -> list[Markup]:
    parts = []
    for x, knob in zip(xs, found.knobs, strict=True):
        parts.append(element("path", d=f"M{x:.4g} {settings.top:.4g}V{settings.bottom:.4g}", class_="rail"))
        parts.append(words(x, settings.bottom + 22, cut(knob.name, 14), "axis", "middle"))
        for place, choice in enumerate(knob.choices):
            y = _height(len(knob.choices), place, 0.5, settings)
            parts.append(words(x + 5, y + 4, cut(choice, 12), "tick halo"))
    parts.append(element("path", d=f"M{right:.4g} {settings.top:.4g}V{settings.bottom:.4g}", class_="rail"))
    parts.append(words(right, settings.bottom + 22, "latency, us", "axis", "middle"))
    best = found.tried[0].latency_us
    ticks = latency.ticks(8)
    for tick, text in zip(ticks, tick_texts(ticks), strict=True):
        if abs(latency.at(tick) - latency.at(best)) > 14:
            parts.append(words(right + 8, latency.at(tick) + 4, text, "tick"))
    parts.append(words(right + 8, latency.at(best) + 4, f"{short(best)} us", "best"))
    return parts
