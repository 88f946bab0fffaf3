"""Values of an import: files, the configs in them, the user's options, and skipped parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuner.kernels.spec import Config, Value

UNKNOWN_FORMAT = "unknown format"
"""First words of the reason if a file does not follow any format that is read."""


@dataclass(frozen=True)
class ImportLimits:
    """Bounds on what a file of another tool may hold."""

    max_bytes: int = 64_000_000
    """Bytes of one file, uncompressed."""
    max_knobs: int = 32
    """Knobs of one config."""
    max_device_name: int = 100
    """Characters of a device's name."""
    max_num_warps: int = 64
    """Warps of one program; the least is 1."""
    max_num_stages: int = 64
    """Pipeline stages of one program; the least is 0."""


LIMITS = ImportLimits()


@dataclass(frozen=True)
class ImportFile:
    """A JSON file that was read."""

    path: Path
    document: Any
    """The parsed JSON."""

    @property
    def name(self) -> str:
        """File name without its folder, as messages and answers show it."""
        return self.path.name


@dataclass(frozen=True)
class ImportOptions:
    """Values that the user states for files that lack them."""

    op: str | None = None
    device: str | None = None
    """Name or id of the card."""
    triton: str = ""
    problem: Mapping[str, str | None] = field(default_factory=dict)
    """`{"M": "4096"}`; names alone, `{"M": None}`, for a file that has the values without the names."""


@dataclass(frozen=True)
class ImportedConfig:
    """One config as a file states it, unchecked: the best of a problem on a card."""

    file: str
    op: str
    dims: Mapping[str, int]
    config: Mapping[str, Any]
    device: str
    """Name or id of the card."""
    dtype: str = "bf16"
    attributes: Mapping[str, Value] = field(default_factory=dict)
    triton: str = ""
    """Triton version it was tuned with; empty if unknown."""
    policy: str = "unknown"
    """Name of the method it was timed by."""
    latency_us: float | None = None


@dataclass(frozen=True)
class Skipped:
    """Something that is not imported or exported, with the reason."""

    file: str
    reason: str


def unchecked_config(values: Mapping[str, Any]) -> Config:
    """Return the config of a file whose knobs no signature describes. Its text names all of them, sorted."""
    return Config(values, " ".join(f"{name}={values[name]}" for name in sorted(values)))
