"""The best latency of a search so far, against time or trials, with the failures below by kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from markupsafe import Markup

from tuner.api.pages.plots.frame import Box, Heading, along_axis, figure, nothing, text_width, value_axis
from tuner.api.pages.plots.scales import Scale, linear_scale, log_scale, short, spread
from tuner.api.pages.plots.svg import cut, element, link, title, words


@dataclass(frozen=True)
class TrialPoint:
    """One trial of a run."""

    x: float
    """Seconds since the run began, or its number."""
    latency_us: float | None
    """None if it failed."""
    outcome: str
    """`ok`, or the kind of failure."""
    label: str
    """Its config, for the tooltip."""
    href: str = ""

    @property
    def known_us(self) -> float:
        """The latency, or 0 if it failed or is no latency."""
        value = self.latency_us
        return value if value is not None and isfinite(value) and value > 0 else 0.0


@dataclass(frozen=True)
class Level:
    """A latency to compare with, such as the default's."""

    name: str
    latency_us: float

    @property
    def is_known(self) -> bool:
        return isfinite(self.latency_us) and self.latency_us > 0


@dataclass(frozen=True)
class ProgressSettings:
    """Limits and sizes of the plot, in px."""

    most_points: int = 400
    """Trials that are drawn as points, beside the improvements."""
    most_better: int = 60
    """Improvements that are drawn as points, the last ones."""
    most_ticks: int = 100
    """Failures that are drawn of each kind."""
    bottom: float = 260
    width: int = 540


SETTINGS = ProgressSettings()
_KIND_ROW = 20.0


def best_so_far(
    heading: Heading,
    trials: Sequence[TrialPoint],
    x_label: str,
    levels: Sequence[Level] = (),
    settings: ProgressSettings = SETTINGS,
) -> Markup:
    """Return the steps of the best latency, each trial as a point, and the failures as ticks, a row for each kind.

    Args:
        trials: In any order.
        x_label: Name of `x`: `seconds` or `trial`.
        levels: Latencies drawn as dashed lines with their names.
    """
    levels = [level for level in levels if level.is_known]
    ordered = sorted((trial for trial in trials if isfinite(trial.x)), key=lambda trial: trial.x)
    ran = [trial for trial in ordered if trial.known_us]
    failed = [trial for trial in ordered if not trial.known_us]
    if not ordered:
        return nothing("No trial has ended yet.")
    kinds = sorted({trial.outcome for trial in failed})
    left = max((text_width(_row_name(failed, kind)) + 18 for kind in kinds), default=0.0)
    box = Box(max(58.0, min(left, 180)), 34, settings.width - 96, settings.bottom)
    x = linear_scale([0.0, *(trial.x for trial in ordered)], box.left, box.right)
    body: list[Markup] = []
    if ran:
        values = [trial.known_us for trial in ran] + [level.latency_us for level in levels]
        y = log_scale(values, box.bottom, box.top)
        body += [*value_axis(y, box, "latency, us", 5), *_steps(ran, x, y, levels, box), *_points(ran, x, y, settings)]
    else:
        body.append(words(box.left, (box.top + box.bottom) / 2, "No config ran so far.", "note"))
    for place, kind in enumerate(kinds):
        body += _failures([trial for trial in failed if trial.outcome == kind], kind, place, x, box, settings)
    below = Box(box.left, box.top, box.right, box.bottom + 14 + len(kinds) * _KIND_ROW)
    body += along_axis(x, below, x_label, 7)
    return figure(heading, "progress", (settings.width, below.bottom + 46), body)


def _improvements(ran: Sequence[TrialPoint]) -> list[TrialPoint]:
    found: list[TrialPoint] = []
    for trial in ran:
        if not found or trial.known_us < found[-1].known_us:
            found.append(trial)
    return found


def _steps(ran: Sequence[TrialPoint], x: Scale, y: Scale, levels: Sequence[Level], box: Box) -> list[Markup]:
    better = _improvements(ran)
    path = f"M{x.at(better[0].x):.1f} {y.at(better[0].known_us):.1f}"
    path += "".join(f"H{x.at(trial.x):.1f}V{y.at(trial.known_us):.1f}" for trial in better[1:])
    best = better[-1].known_us
    parts = []
    named = [
        (y.at(level.latency_us), cut(level.name, 12), f"{level.name}: {short(level.latency_us)} us") for level in levels
    ]
    heights = spread([y.at(best), *(at for at, _, _ in named)], 16, box.top, box.bottom)
    for (at, name, text), height in zip(named, heights[1:], strict=True):
        line = element("path", d=f"M{box.left:.1f} {at:.1f}H{box.right:.1f}", class_="level")
        parts.append(element("g", title(text), line, words(box.right + 8, height + 4, name, "note")))
    parts.append(element("path", d=f"{path}H{box.right:.1f}", class_="steps"))
    parts.append(words(box.right + 8, heights[0] + 4, f"{short(best)} us", "best"))
    return parts


def _points(ran: Sequence[TrialPoint], x: Scale, y: Scale, settings: ProgressSettings) -> list[Markup]:
    better = {id(trial) for trial in _improvements(ran)[-settings.most_better :]}
    every = max(1, -(-len(ran) // settings.most_points))
    return [
        link(
            trial.href,
            title(f"{short(trial.known_us)} us at {short(trial.x)}\n{trial.label}"),
            element(
                "circle",
                cx=x.at(trial.x),
                cy=y.at(trial.known_us),
                r=3.5 if id(trial) in better else 2.5,
                class_="trial better" if id(trial) in better else "trial",
            ),
        )
        for place, trial in enumerate(ran)
        if place % every == 0 or id(trial) in better
    ]


def _row_name(failed: Sequence[TrialPoint], kind: str) -> str:
    count = sum(trial.outcome == kind for trial in failed)
    return f"{count:,} {cut(kind.replace('_', ' '), 20)}"


def _failures(
    failed: Sequence[TrialPoint], kind: str, place: int, x: Scale, box: Box, settings: ProgressSettings
) -> list[Markup]:
    y = box.bottom + 14 + place * _KIND_ROW
    parts = [words(box.left - 10, y + 13, _row_name(failed, kind), "note", "end")]
    every = max(1, -(-len(failed) // settings.most_ticks))
    for trial in failed[::every]:
        tick = element("path", d=f"M{x.at(trial.x):.1f} {y + 3:.1f}v12", class_="failure")
        parts.append(link(trial.href, title(f"{kind} at {short(trial.x)}\n{trial.label}"), tick))
    return parts
