"""The plot of one problem's history as SVG, in colours that can be read on a light and on a dark page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from xml.etree.ElementTree import Element, SubElement, tostring

from tuner.report.retune.escapes import one_line, plain_text
from tuner.report.retune.points import Point

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#C87F00", "#009E73", "#767676"
"""Colours by Okabe and Ito, the orange darker. Each has a contrast of at least 3 on white and on a dark grey."""
_FONT = "system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif"


@dataclass(frozen=True)
class _Series:
    name: str
    colour: str
    dashes: str
    of: Callable[[Point], float | None]


_SERIES = (
    _Series("vendor", GREEN, "2 4", lambda point: point.vendor_us),
    _Series("default", ORANGE, "7 4", lambda point: point.default_us),
    _Series("answer", BLUE, "", lambda point: point.latency_us),
)
"""Lines of a plot; the last is drawn above the others."""


@dataclass(frozen=True)
class Frame:
    """Size of a plot and its margins, in pixels."""

    width: int = 760
    height: int = 320
    left: int = 70
    right: int = 28
    top: int = 66
    bottom: int = 54
    labels: int = 8
    """Number of times on the horizontal axis at most."""
    title_characters: int = 80
    note_characters: int = 105
    """Lengths of texts that fit the width."""

    def x(self, place: int, count: int) -> float:
        """Return the horizontal position of one of `count` points."""
        room = self.width - self.left - self.right
        return self.left + room * (place + 0.5) / count

    def y(self, value: float, low: float, high: float) -> float:
        """Return the vertical position of a value between two ends."""
        room = self.height - self.top - self.bottom
        return self.top + room * (high - value) / (high - low)


FRAME = Frame()


def plot(title: str, note: str, points: Sequence[Point], frame: Frame = FRAME) -> str:
    """Return an SVG document: the answer with its intervals, the default and the vendor at each time.

    Args:
        note: a line under the title.
        points: at least one, oldest first.
    """
    size = {"width": str(frame.width), "height": str(frame.height)}
    box = {"viewBox": f"0 0 {frame.width} {frame.height}", "font-family": _FONT, "font-size": "12", "role": "img"}
    svg = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", **size, **box})
    SubElement(svg, "title").text = plain_text(title)
    _text(svg, frame.left, 20, one_line(title, frame.title_characters), {"font-size": "14", "font-weight": "600"})
    _text(svg, frame.left, 38, one_line(note, frame.note_characters))
    _legend(svg, frame, points)
    ticks = _ticks(points)
    low, high = ticks[0], ticks[-1]
    for tick in ticks:
        _line(svg, frame.left, frame.y(tick, low, high), frame.width - frame.right, None, opacity="0.3")
        at = {"text-anchor": "end"}
        _text(svg, frame.left - 8, frame.y(tick, low, high) + 4, f"{tick:,.6g}", at)
    across = {"transform": f"rotate(-90 16 {frame.height / 2:g})", "text-anchor": "middle"}
    _text(svg, 16, frame.height / 2, "latency, us", across)
    _times(svg, frame, points)
    for series in _SERIES:
        _draw(svg, frame, series, points, (low, high))
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(svg, encoding="unicode") + "\n"


def _draw(svg: Element, frame: Frame, series: _Series, points: Sequence[Point], ends: tuple[float, float]) -> None:
    placed = [
        (frame.x(place, len(points)), frame.y(value, *ends), point)
        for place, point in enumerate(points)
        if (value := series.of(point)) is not None
    ]
    if len(placed) > 1:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in placed)
        style = {"fill": "none", "stroke": series.colour, "stroke-width": "2"}
        SubElement(svg, "polyline", {"points": path, **style, "stroke-dasharray": series.dashes or "none"})
    for x, y, point in placed:
        is_answer = series.name == "answer"
        if is_answer and point.interval_us is not None:
            low, high = (frame.y(bound, *ends) for bound in point.interval_us)
            _line(svg, x, low, x, high, series.colour, width="2")
        filled = series.colour if is_answer and point.kind == "answer" else "none"
        radius = "4.5" if is_answer else "2.5"
        style = {"fill": filled, "stroke": series.colour, "stroke-width": "2"}
        SubElement(svg, "circle", {"cx": f"{x:.1f}", "cy": f"{y:.1f}", "r": radius, **style})


def _times(svg: Element, frame: Frame, points: Sequence[Point]) -> None:
    """Write the times below the axis, and `then`, `now` and `new` below theirs."""
    step = ceil(len(points) / frame.labels)
    base = frame.height - frame.bottom
    labelled = {place for place, point in enumerate(points) if point.label}
    spread = {place for place in range(0, len(points), step) if not any(abs(place - own) < step for own in labelled)}
    for place, point in enumerate(points):
        x, near = frame.x(place, len(points)), {other - place for other in labelled if abs(other - place) < step}
        is_last = max(near, default=0) <= 0
        if place in spread or (point.label and is_last):
            _text(svg, x, base + 18, point.day, {"text-anchor": "middle"})
        if point.label:  # of neighbours, the texts give way to each other
            anchor = "middle" if len(near) == 1 or min(near) < 0 < max(near) else "start" if is_last else "end"
            _text(svg, x, base + 36, point.label, {"text-anchor": anchor, "font-weight": "600"})


def _legend(svg: Element, frame: Frame, points: Sequence[Point]) -> None:
    x = float(frame.left)
    for series in reversed(_SERIES):
        if all(series.of(point) is None for point in points):
            continue
        _line(svg, x, 54, x + 26, None, series.colour, width="2", dashes=series.dashes)
        _text(svg, x + 32, 58, series.name)
        x += 32 + 8 * len(series.name) + 20
    if any(point.kind == "check" for point in points):
        for fill, name in ((BLUE, "stored"), ("none", "measured again")):
            style = {"fill": fill, "stroke": BLUE, "stroke-width": "2"}
            SubElement(svg, "circle", {"cx": f"{x + 6:g}", "cy": "54", "r": "4.5", **style})
            _text(svg, x + 16, 58, name)
            x += 16 + 8 * len(name) + 12


def _ticks(points: Sequence[Point]) -> list[float]:
    """Return 3 to 8 round values that enclose all latencies and intervals."""
    values = [value for point in points for series in _SERIES if (value := series.of(point)) is not None]
    values += [bound for point in points for bound in point.interval_us or ()]
    low, high = min(values), max(values)
    span = max(high - low, 0.02 * high)
    low, high = max(low - 0.1 * span, 0.0), high + 0.1 * span
    rough = (high - low) / 5
    size = 10.0 ** floor(log10(rough))
    step = next(factor * size for factor in (1, 2, 5, 10) if factor * size >= rough)
    first, last = floor(low / step), ceil(high / step)
    return [round(step * place, 12) for place in range(first, last + 1)]


def _text(svg: Element, x: float, y: float, text: str, style: dict[str, str] | None = None) -> None:
    SubElement(svg, "text", {"x": f"{x:g}", "y": f"{y:g}", "fill": GREY, **(style or {})}).text = plain_text(text)


def _line(
    svg: Element,
    x: float,
    y: float,
    to_x: float,
    to_y: float | None,
    colour: str = GREY,
    *,
    width: str = "1",
    dashes: str = "",
    opacity: str = "1",
) -> None:
    ends = {"x1": f"{x:.1f}", "y1": f"{y:.1f}", "x2": f"{to_x:.1f}", "y2": f"{y if to_y is None else to_y:.1f}"}
    style = {"stroke": colour, "stroke-width": width, "stroke-dasharray": dashes or "none", "stroke-opacity": opacity}
    SubElement(svg, "line", {**ends, **style})
