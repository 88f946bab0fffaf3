"""Scales from values to positions, their ticks, and numbers as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, floor, isfinite, log, log10


@dataclass(frozen=True)
class Scale:
    """A linear or logarithmic scale from values to positions."""

    low: float
    high: float
    start: float
    """Position of `low`."""
    end: float
    """Position of `high`."""
    is_log: bool = False

    def at(self, value: float) -> float:
        """Return the position of a value. Values outside the range are placed at its ends."""
        low, high, value = (self._flat(number) for number in (self.low, self.high, value))
        share = 0.5 if high == low else (value - low) / (high - low)
        return self.start + (self.end - self.start) * min(max(share, 0.0), 1.0)

    def ticks(self, most: int = 6) -> list[float]:
        """Return at most `most` round values within the range."""
        if self.is_log and self.high / self.low >= 4:
            return _log_ticks(self.low, self.high, most)
        return _linear_ticks(self.low, self.high, most)

    def _flat(self, value: float) -> float:
        return log(max(value, self.low)) if self.is_log else value


def log_scale(values: Iterable[float], start: float, end: float, margin: float = 0.04) -> Scale:
    """Return a logarithmic scale that holds all values above 0, with a margin as a share of its length.

    Raises:
        ValueError: no value is finite and above 0.
    """
    usable = [value for value in values if isfinite(value) and value > 0]
    if not usable:
        raise ValueError("a logarithmic scale needs a value above 0, and there is none")
    low, high = min(usable), max(usable)
    factor = max((high / low) ** margin, 1.01)
    return Scale(low / factor, high * factor, start, end, is_log=True)


def linear_scale(values: Iterable[float], start: float, end: float, zero: bool = False) -> Scale:
    """Return a linear scale that holds all finite values, and 0 if `zero`."""
    usable = [value for value in values if isfinite(value)] + [0.0] * zero
    low, high = (min(usable), max(usable)) if usable else (0.0, 1.0)
    return Scale(low, high if high > low else low + 1, start, end)


def short(value: float) -> str:
    """Return a number with about three digits: `0.123`, `4.56`, `78.9`, `1,234`."""
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 1e7:
        return f"{value:.2e}".replace("e+0", "e").replace("e+", "e")
    decimals = max(0, 2 - floor(log10(size))) if size < 1000 else 0
    text = f"{value:,.{min(decimals, 6)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def tick_texts(ticks: Sequence[float]) -> list[str]:
    """Return the values of an axis as text, with as many decimals as they need to differ."""
    texts = [short(tick) for tick in ticks]
    for decimals in range(1, 7):
        if len(set(texts)) == len(set(ticks)):
            break
        texts = [f"{tick:,.{decimals}f}" for tick in ticks]
    return texts


def ratio_text(ratio: float) -> str:
    """Return a ratio as a factor: `1.04x`."""
    return f"{ratio:.2f}x" if ratio < 9.95 else f"{short(ratio)}x"


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return a quantile of sorted values, interpolated."""
    place = share * (len(ordered) - 1)
    below = floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def spread(positions: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return positions of labels near the given ones, each at least `gap` from the next if they fit.

    Args:
        positions: In any order; the result has the same order.
        gap: Least distance of two labels; smaller if they do not fit between `low` and `high`.
        low: Lowest position of a label.
        high: Highest position of a label.
    """
    gap = min(gap, (high - low) / max(len(positions) - 1, 1))
    placed = list(positions)
    order = sorted(range(len(placed)), key=lambda index: placed[index])
    least = low
    for index in order:
        placed[index] = least = max(placed[index], least)
        least += gap
    most = high
    for index in reversed(order):
        placed[index] = most = min(placed[index], most)
        most -= gap
    return placed


def _linear_ticks(low: float, high: float, most: int) -> list[float]:
    rough = (high - low) / max(most - 1, 1)
    if rough <= 0:
        return [low]
    size = 10.0 ** floor(log10(rough))
    step = next(factor * size for factor in (1, 2, 5, 10) if factor * size >= rough * 0.999)
    return [round(step * place, 12) for place in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)]


def _log_ticks(low: float, high: float, most: int) -> list[float]:
    decades = range(floor(log10(low)), ceil(log10(high)) + 1)
    ticks: list[float] = []
    for factors in ((1, 2, 5), (1, 3), (1,)):
        ticks = [factor * 10.0**decade for decade in decades for factor in factors]
        ticks = [tick for tick in ticks if low * 0.999 <= tick <= high * 1.001]
        if len(ticks) <= most:
            return ticks
    return ticks[:: ceil(len(ticks) / most)]
