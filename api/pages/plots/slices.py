"""One small plot for each knob: the latencies of its choices, with the fastest config of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from tuner.api.pages.plots.frame import Box, Heading, figure, nothing, text_width, value_axis
from tuner.api.pages.plots.landscape import Knob, Landscape
from tuner.api.pages.plots.scales import Scale, log_scale, quantile, short
from tuner.api.pages.plots.svg import cut, element, title, words


@dataclass(frozen=True)
class SliceSettings:
    """Limits and sizes of the plots, in px."""

    most_points: int = 60
    """Points of each choice, evenly by rank."""
    panel_height: float = 180


SETTINGS = SliceSettings()
_WIDTH = 320


def slices(heading: Heading, found: Landscape, settings: SliceSettings = SETTINGS) -> Markup:
    """Return one panel for each knob, all with the same latency axis."""
    if not found.tried:
        return nothing("No config ran, so there is no slice to show.")
    if not found.knobs:
        return nothing("All configs that ran have the same choices, so there is no slice to show.")
    panels = [_panel(heading, found, place, settings) for place in range(len(found.knobs))]
    return element("div", *panels, class_="plot-slices", role="group", aria_label=heading.title)


def _panel(heading: Heading, found: Landscape, place: int, settings: SliceSettings) -> Markup:
    knob = found.knobs[place]
    box = Box(46, 34, _WIDTH - 6, 34 + settings.panel_height)
    scale = log_scale(found.latencies, box.bottom, box.top)
    gap = (box.right - box.left) / len(knob.choices)
    by_choice: list[list[float]] = [[] for _ in knob.choices]
    for config in found.tried:  # fastest first, so each list ascends
        by_choice[config.choices[place]].append(config.latency_us)
    best = min(range(len(by_choice)), key=lambda choice: by_choice[choice][0])
    parts = [
        words(box.left, 16, cut(knob.name, 30), "strong"),
        words(0, 16, "us", "axis"),
        *value_axis(scale, box, "", 6),
    ]
    for choice, latencies in enumerate(by_choice):
        x = box.left + gap * (choice + 0.5)
        parts.append(_choice(knob, choice, latencies, x, gap, scale, choice == best, settings))
    parts += _names(knob, best, box, gap)
    about = f"Fastest with {knob.name}={knob.choices[best]}. Latency in us of each choice, fastest and median marked."
    return figure(Heading(f"{heading.key}-{place}", knob.name, about), "slices", (_WIDTH, box.bottom + 30), parts)


def _names(knob: Knob, best: int, box: Box, gap: float) -> list[Markup]:
    """Return the names of the choices, as many as fit; the best has its name in any case."""
    longest = max(text_width(cut(choice, 14)) for choice in knob.choices) + 6
    every = max(1, -(-int(longest) // int(gap)))
    return [
        words(
            box.left + gap * (place + 0.5),
            box.bottom + 20,
            cut(name, 14),
            "strong" if place == best else "tick",
            "middle",
        )
        for place, name in enumerate(knob.choices)
        if place == best or (place % every == best % every)
    ]


def _choice(
    knob: Knob,
    choice: int,
    latencies: Sequence[float],
    x: float,
    gap: float,
    scale: Scale,
    is_best: bool,
    settings: SliceSettings,
) -> Markup:
    """Return the points of one choice as one path, its fastest config as a mark, and its median as a tick."""
    reach = min(gap * 0.32, 16)
    count = min(len(latencies), settings.most_points)
    shown = [latencies[int(index * len(latencies) / count)] for index in range(count)]
    # the golden ratio spreads the points evenly and in the same way each time
    dots = "".join(
        f"M{x + reach * (2 * (index * 0.618034 % 1) - 1):.4g} {scale.at(latency):.4g}h0"
        for index, latency in enumerate(shown[1:], 1)
    )
    half = quantile(latencies, 0.5)
    times = f"fastest {short(latencies[0])} us, median {short(half)} us"
    text = f"{knob.name}={knob.choices[choice]}\n{times}\n{len(latencies):,} configs"
    low = scale.at(latencies[0])
    return element(
        "g",
        title(text),
        element("path", d=dots, class_="dots"),
        element("path", d=f"M{x - reach:.4g} {scale.at(half):.4g}h{2 * reach:.4g}", class_="median"),
        element("circle", cx=x, cy=low, r=4.5 if is_best else 3.5, class_="least best" if is_best else "least"),
        class_="strip",
    )
