"""The knobs of a kernel that move a bottleneck, found by patterns of their names and help texts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tuner.kernels.spec import Knob, Value
from tuner.kernels.values import ordering

Direction = Literal["raise", "lower", "change"]
KINDS: Mapping[str, str] = {
    "tile": r"^[A-Z]*(BLOCK|TILE)|^ROWS|^COLUMNS",
    "pad": r"^PAD",
    "vector": r"^VEC",
    "warps": r"^num_warps",
    "stages": r"^num_stages|^STAGES",
    "group": r"^GROUP",
    "split": r"^SPLIT|programs share|over several programs",
    "variant": r"^VARIANT|^WAY",
}
"""Kinds of knobs, each with a pattern that its names or help texts match."""


@dataclass(frozen=True)
class Move:
    """A kind of knob, and the direction in which it moves a bottleneck."""

    kind: str
    direction: Direction = "change"


@dataclass(frozen=True)
class Lever:
    """A knob that moves a bottleneck, from its value in a config."""

    name: str
    value: Value
    direction: Direction
    help: str

    @property
    def text(self) -> str:
        """Return it as advice: `raise PAD (0; elements between the tile's rows)`."""
        about = f"; {self.help}" if self.help else ""
        return f"{self.direction} {self.name} ({self.value}{about})"


def levers(knobs: Sequence[Knob], config: Mapping[str, Value], moves: Sequence[Move]) -> list[Lever]:
    """Return the knobs that move a bottleneck and have another choice in that direction, in the order of the moves."""
    found: dict[str, Lever] = {}
    for move in moves:
        for knob in _of_kind(knobs, move.kind):
            if knob.name in config and _can_move(knob, config[knob.name], move.direction):
                direction = "change" if isinstance(config[knob.name], str) else move.direction
                found.setdefault(knob.name, Lever(knob.name, config[knob.name], direction, knob.help))
    return list(found.values())


def _of_kind(knobs: Sequence[Knob], kind: str) -> Iterator[Knob]:
    pattern = re.compile(KINDS[kind])
    return (knob for knob in knobs if pattern.search(knob.name) or pattern.search(knob.help))


def _can_move(knob: Knob, value: Value, direction: Direction) -> bool:
    """Return whether a knob has another choice in a direction; text values have no direction."""
    if direction == "change" or isinstance(value, str):
        return any(choice != value for choice in knob.choices)
    if direction == "raise":
        return any(ordering(choice) > ordering(value) for choice in knob.choices)
    return any(ordering(choice) < ordering(value) for choice in knob.choices)
