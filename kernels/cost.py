"""Estimated time of a config, by what it waits for; standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """Estimated time of a config of a problem on a card."""

    us: float
    """Latency in us."""
    parts: Mapping[str, float]
    """Time of each resource in us, as if the others took none."""

    @property
    def limit(self) -> str:
        """Name of the resource that takes longest."""
        return max(self.parts, key=lambda name: self.parts[name])
