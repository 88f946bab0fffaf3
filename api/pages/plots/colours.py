"""Colour scales of nine steps: sequential, or diverging around 1. The colours are custom properties of plots.css."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import exp, isfinite, log
from typing import Literal

from tuner.api.pages.plots.scales import quantile, ratio_text, short

STEPS = 9
_LEAST_FACTOR = 1.1
"""Least factor by which the ends of a diverging scale differ from 1, so that noise is not shown in strong colours."""


@dataclass(frozen=True)
class ColourScale:
    """A scale from values to the classes of nine colours."""

    label: str
    """Name of what is coloured, such as `speed-up over default`."""
    kind: Literal["sequential", "diverging"]
    low: float
    """Values up to this one have the first colour."""
    high: float
    is_log: bool = False
    unit: str = ""
    """Text after a number, such as ` days`; `x` for ratios."""

    def step(self, value: float) -> int:
        """Return the place of a value's colour, 0 to 8."""
        low, high, value = (log(max(v, 1e-12)) if self.is_log else v for v in (self.low, self.high, value))
        share = (value - low) / (high - low) if high > low else 0.5
        return min(max(int(share * STEPS), 0), STEPS - 1)

    def css(self, value: float) -> str:
        """Return the class of a value's colour: `s0` to `s8`, or `d0` to `d8`."""
        return f"{self.kind[0]}{self.step(value)}"

    def text(self, value: float) -> str:
        """Return a value with its unit."""
        if self.unit == "x":
            return ratio_text(value)
        return f"{value:.0%}" if self.unit == "%" else f"{short(value)}{self.unit}"


def around_one(label: str, ratios: Iterable[float]) -> ColourScale:
    """Return a diverging scale of ratios. Its ends are a factor that 95 % of the ratios keep to."""
    distances = sorted(abs(log(ratio)) for ratio in ratios if isfinite(ratio) and ratio > 0)
    reach = max(quantile(distances, 0.95) if distances else 0.0, log(_LEAST_FACTOR))
    return ColourScale(label, "diverging", exp(-reach), exp(reach), is_log=True, unit="x")


def from_low_to_high(label: str, values: Iterable[float], unit: str = "", is_log: bool = False) -> ColourScale:
    """Return a sequential scale of values, such as ages in days."""
    usable = [value for value in values if isfinite(value) and (value > 0 or not is_log)] or [0.0, 1.0]
    return ColourScale(label, "sequential", min(usable), max(usable), is_log, unit)


def shares(label: str) -> ColourScale:
    """Return a sequential scale of shares from 0 to 1."""
    return ColourScale(label, "sequential", 0.0, 1.0, unit="%")
