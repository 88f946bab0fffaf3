"""Tried configs as plain data for plots: each knob's choices, and each config's place among them with its latency."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite

from tuner.kernels.spec import Value
from tuner.records import Measurement


@dataclass(frozen=True)
class Knob:
    """A knob with the choices that were tried, in order."""

    name: str
    choices: tuple[str, ...]


@dataclass(frozen=True)
class Tried:
    """One config that ran."""

    choices: tuple[int, ...]
    """Place of its choice of each knob."""
    latency_us: float
    marks: tuple[str, ...] = ()
    """Roles of the config, such as `answer` or `default`."""


@dataclass(frozen=True)
class Landscape:
    """The configs that ran, fastest first."""

    knobs: tuple[Knob, ...]
    """Knobs with at least two choices."""
    tried: tuple[Tried, ...]
    same: Mapping[str, str]
    """The one choice of each other knob."""

    def text(self, config: Tried) -> str:
        """Return a config's choices of the knobs that differ: `BLOCK_M=64 num_warps=4`."""
        return " ".join(
            f"{knob.name}={knob.choices[place]}" for knob, place in zip(self.knobs, config.choices, strict=True)
        )

    @cached_property
    def latencies(self) -> tuple[float, ...]:
        """Latencies in us, ascending."""
        return tuple(config.latency_us for config in self.tried)


def landscape(measurements: Iterable[Measurement], marks: Mapping[str, Sequence[str]] | None = None) -> Landscape:
    """Return the landscape of the configs that ran.

    Args:
        marks: By a config's canonical text, what it is: `answer`, `default`, `tie`.
    """
    ran = sorted((m for m in measurements if m.ok and isfinite(m.latency_us)), key=lambda m: m.latency_us)
    values: dict[str, dict[Value, None]] = {}
    for measurement in ran:
        for name, value in measurement.config.items():
            values.setdefault(name, {})[value] = None
    ordered = {name: sorted(found, key=_order) for name, found in values.items()}
    knobs = {name: choices for name, choices in ordered.items() if len(choices) > 1}
    places = {name: {value: place for place, value in enumerate(choices)} for name, choices in knobs.items()}
    tried = [
        Tried(
            tuple(places[name].get(measurement.config.get(name), 0) for name in knobs),
            measurement.latency_us,
            tuple((marks or {}).get(measurement.config.text, ())),
        )
        for measurement in ran
    ]
    return Landscape(
        tuple(Knob(name, tuple(map(str, choices))) for name, choices in knobs.items()),
        tuple(tried),
        {name: str(choices[0]) for name, choices in ordered.items() if len(choices) == 1},
    )


def thinned(found: Landscape, most: int) -> Landscape:
    """Return at most `most` configs: all marked ones, the fastest quarter of `most`, and the others evenly by rank."""
    if len(found.tried) <= most:
        return found
    kept = set(range(most // 4)) | {place for place, config in enumerate(found.tried) if config.marks}
    others = [place for place in range(len(found.tried)) if place not in kept]
    room = max(most - len(kept), 0)
    kept |= {others[int(index * len(others) / room)] for index in range(room)}
    return Landscape(found.knobs, tuple(found.tried[place] for place in sorted(kept)[:most]), found.same)


def _order(value: Value) -> tuple[int, float, str]:
    return (0, float(value), "") if isinstance(value, (int, float)) else (1, 0.0, str(value))
