"""One small plot for each knob: the latencies of its choices, with the fastest config of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from tuner.api.pages.plots.frame import Box, Heading, figure, nothing, value_axis
from tuner.api.pages.plots.landscape import Knob, Landscape
from tuner.api.pages.plots.scales import Scale, log_scale, quantile, short
from tuner.api.pages.plots.svg import cut, element, title, words


@dataclass(frozen=True)
class SliceSettings:
    """Limits and sizes of the plots, in px."""

    most_points: int = 60
    """Points of each choice, evenly by rank."""
    panel_height: float = 190
    columns: int = 3
    width: int = 960


SETTINGS = SliceSettings()


def slices(heading: Heading, found: Landscape, settings: SliceSettings = SETTINGS) -> Markup:
    """Return one panel for each knob, all with the same latency axis."""
    if not found.tried:
        return nothing("No config ran, so there is no slice to show.")
    if not found.knobs:
        return nothing("All configs that ran have the same choices, so there is no slice to show.")
    columns = min(settings.columns, len(found.knobs))
    room = settings.width / settings.columns
    body: list[Markup] = []
    for place, knob in enumerate(found.knobs):
        row, column = divmod(place, columns)
        top = row * (settings.panel_height + 66) + 40
        box = Box(column * room + 46, top, (column + 1) * room - 14, top + settings.panel_height)
        body.append(_panel(found, place, knob, box, settings))
    rows = -(-len(found.knobs) // columns)
    return figure(heading, "slices", (settings.width, rows * (settings.panel_height + 66)), body)


def _panel(found: Landscape, place: int, knob: Knob, box: Box, settings: SliceSettings) -> Markup:
    scale = log_scale(found.latencies, box.bottom, box.top)
    parts = [words(box.left, box.top - 16, cut(knob.name, 30), "strong"), *value_axis(scale, box, "", 6)]
    gap = (box.right - box.left) / len(knob.choices)
    by_choice: list[list[float]] = [[] for _ in knob.choices]
    for config in found.tried:  # fastest first, so each list ascends
        by_choice[config.choices[place]].append(config.latency_us)
    best = min(range(len(by_choice)), key=lambda choice: by_choice[choice][0])
    every = max(1, -(-max(7 * len(choice) + 6 for choice in knob.choices) // int(gap)))
    for choice, latencies in enumerate(by_choice):
        x = box.left + gap * (choice + 0.5)
        parts.append(_choice(knob, choice, latencies, x, gap, scale, choice == best, settings))
        if choice % every == 0 or choice == best:
            near_best = choice != best and abs(choice - best) < every
            if not near_best:
                parts.append(
                    words(
                        x,
                        box.bottom + 18,
                        cut(knob.choices[choice], 14),
                        "strong" if choice == best else "tick",
                        "middle",
                    )
                )
    return element("g", *parts)


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
