"""Values of an import: files, the configs in them, the user's options, and skipped parts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuner.errors import UsageError
from tuner.kernels.dtypes import shown
from tuner.kernels.spec import Config, Value
from tuner.kernels.values import canonical_text, is_value

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
    max_num_warps: int = 32
    """Warps of one program; the least is 1. A program has at most 1,024 threads."""
    max_num_stages: int = 64
    """Pipeline stages of one program; the least is 0."""
    max_size: int = 2**20
    """Elements of a block along one dim: Triton's limit on the elements of a tensor."""


LIMITS = ImportLimits()


@dataclass(frozen=True)
class ImportFile:
    """A JSON file that was read."""

    path: Path
    document: Any
    """The parsed JSON."""
    shown: str = ""
    """Name in messages and with the answers: the end of the path in which it differs from the other files."""

    @property
    def name(self) -> str:
        """File name without its folder."""
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
    """One config as a file states it, unchecked: the best of a problem on a card.

    It has the knobs that the file states and no others: what it leaves out, such as `num_stages`, is Triton's default.
    """

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
    at: str = ""
    """Place in the file, such as the key of a table."""


@dataclass(frozen=True)
class Skipped:
    """Something that is not imported or exported, with the reason."""

    file: str
    reason: str
    at: str = ""
    """Place in the file; empty: the file has one config, or no part of it is meant."""


def unchecked_config(values: object) -> Config:
    """Return the config of a file whose knobs no signature describes. Its text names all of them, sorted.

    Raises:
        UsageError: It is not an object, or a value in it is a list, an object or not finite.
    """
    if not isinstance(values, dict):
        raise UsageError(f"a config is an object with a value for each knob, not {shown(values)}")
    for name, value in values.items():
        if not is_value(value):
            raise UsageError(f"{str(name)[:40]} is a number, a boolean or a text, not {shown(value)}")
    return Config(values, canonical_text(values))


def sizes_and_attributes(values: Mapping[str, str]) -> tuple[dict[str, int], dict[str, Value]]:
    """Return the values of a problem that are sizes, and the others without the dtype."""
    sizes = {name: int(value) for name, value in values.items() if re.fullmatch("[0-9]{1,10}", value)}
    return sizes, {name: value for name, value in values.items() if name != "dtype" and name not in sizes}
