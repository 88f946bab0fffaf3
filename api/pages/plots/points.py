"""Points of a plot as compact JSON, for `assets/plots.js`.

A document has the fields `x` and `y` (labels), `series` (name, kind and colour of each column of `ys`), `xs` (absent if
they are 0, 1, 2 and so on), `ys`, and either `labels` or `knobs`. A knob is its name, its choices, and a text with one
character for each point, whose code is 48 plus the place of its choice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import accumulate
from math import inf, isfinite
from typing import Any

from tuner.api.pages.plots.landscape import Landscape
from tuner.api.pages.plots.progress import Level, TrialPoint
from tuner.api.pages.plots.ratios import Ratio
from tuner.api.pages.plots.svg import cut

MAX_BYTES = 300_000
"""Largest size of a document, in bytes; above it, labels are cut, then points are left out evenly."""
_FIRST_CODE = 48
_MOST_LEFT_OUT = 1 << 20
_LABELS = (200, 60)
"""Longest labels, in characters: the second if the document is too large with the first."""


def landscape_points(found: Landscape) -> bytes:
    """Return all configs that ran: by rank, or by the choice of one knob, with their latencies."""

    def document(every: int, longest: int) -> dict[str, Any]:
        tried = found.tried[::every]
        codes = [
            "".join(chr(_FIRST_CODE + config.choices[place]) for config in tried) for place in range(len(found.knobs))
        ]
        return {
            "x": "rank",
            "y": "latency, us",
            "series": [["config", "points", "c0"]],
            "ys": [[_rounded(config.latency_us) for config in tried]],
            "knobs": [
                [cut(knob.name, 60), [cut(choice, 60) for choice in knob.choices], text]
                for knob, text in zip(found.knobs, codes, strict=True)
            ],
            "marks": {str(place): ", ".join(config.marks) for place, config in enumerate(tried) if config.marks},
        }

    return _within_limit(document)


def progress_points(trials: Sequence[TrialPoint], x_label: str, levels: Sequence[Level] = ()) -> bytes:
    """Return all trials with the best latency so far, and the failures at the lower edge."""
    ordered = sorted((trial for trial in trials if isfinite(trial.x)), key=lambda trial: trial.x)
    best = list(accumulate((trial.known_us or inf for trial in ordered), min))
    floor = min((trial.known_us for trial in ordered if trial.known_us), default=1.0) * 0.9

    def document(every: int, longest: int) -> dict[str, Any]:
        shown = ordered[::every]
        return {
            "x": x_label,
            "y": "latency, us",
            "series": [["trial", "points", "muted"], ["best so far", "steps", "accent"], ["failed", "points", "bad"]],
            "xs": [_rounded(trial.x) for trial in shown],
            "ys": [
                [_rounded(trial.known_us) if trial.known_us else None for trial in shown],
                [_rounded(value) if value < inf else None for value in best[::every]],
                [None if trial.known_us else _rounded(floor) for trial in shown],
            ],
            "labels": [cut(t.label if t.known_us else f"{t.outcome}: {t.label}", longest) for t in shown],
            "levels": [[cut(level.name, 60), _rounded(level.latency_us)] for level in levels if level.is_known],
        }

    return _within_limit(document)


def ratio_points(ratios: Sequence[Ratio]) -> bytes:
    """Return all ratios, sorted."""
    ordered = sorted((r for r in ratios if isfinite(r.ratio) and r.ratio > 0), key=lambda r: r.ratio)

    def document(every: int, longest: int) -> dict[str, Any]:
        shown = ordered[::every]
        return {
            "x": "problem",
            "y": "ratio",
            "series": [["ratio", "points", "c0"]],
            "ys": [[_rounded(ratio.ratio) for ratio in shown]],
            "labels": [cut(ratio.label, longest) for ratio in shown],
            "levels": [["1x", 1]],
        }

    return _within_limit(document)


def _within_limit(document: Callable[[int, int], dict[str, Any]]) -> bytes:
    """Return the document of every point, or of every second, fourth and so on if it is too large."""
    every, longest = 1, _LABELS[0]
    while len(data := _dumped(document(every, longest))) > MAX_BYTES and every < _MOST_LEFT_OUT:
        every, longest = (1, _LABELS[1]) if longest > _LABELS[1] else (2 * every, longest)
    return data


def _dumped(document: dict[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode("utf-8", "replace")


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")
