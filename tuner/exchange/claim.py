"""What a file of others says: that a config is the best of a problem on a card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuner.kernels.spec import Value

NOT_KNOWN = "schema not known"


@dataclass(frozen=True)
class TunedFile:
    """A file that was read."""

    path: Path
    document: Any
    """Its JSON."""

    @property
    def name(self) -> str:
        """What people are told; where it lies is nobody's business."""
        return self.path.name


@dataclass(frozen=True)
class Given:
    """What the user says of files that do not say it themselves."""

    op: str | None = None
    device: str | None = None
    """Name or id of the card."""
    triton: str = ""
    problem: Mapping[str, str | None] = field(default_factory=dict)
    """`{"M": "4096"}`; or names alone, `{"M": None}`, for a file that has the values and not the names."""


@dataclass(frozen=True)
class Claim:
    """One config of a file. Nothing of it is checked yet."""

    file: str
    op: str
    dims: Mapping[str, int]
    config: Mapping[str, Any]
    device: str
    """Name of the card, or its id."""
    dtype: str = "bf16"
    attributes: Mapping[str, Value] = field(default_factory=dict)
    triton: str = ""
    """Version that it was tuned with; empty where that is not known."""
    policy: str = "unknown"
    """By whose method it was timed."""
    latency_us: float | None = None


@dataclass(frozen=True)
class Refused:
    """Something of a file that was not let in, and why."""

    file: str
    reason: str
