"""The state of a search while it runs."""

from __future__ import annotations

from dataclasses import dataclass

WAITING, MEASURING, COMPARING = "waiting", "measuring", "comparing"
STAGES = (WAITING, MEASURING, COMPARING)
"""Stages of a search: it waits for the device, measures configs, or compares the finalists."""


@dataclass(frozen=True)
class InProgress:
    """The configs that a measurer works on."""

    compiling: int
    """Number of configs that compile or wait for a compiler."""
    compiled: int
    """Number of compiled configs that wait for the device."""
    measuring: str | None
    """Canonical text of the config on the device; None if there is none."""


@dataclass(frozen=True)
class RunState:
    """The work of a search at one moment."""

    stage: str
    """One of `STAGES`."""
    compiling: int = 0
    """As in `InProgress`, like `compiled` and `measuring`."""
    compiled: int = 0
    measuring: str | None = None
    rounds: int = 0
    """Number of rounds of the interleaved comparison so far."""
    contenders: int = 0
    """Number of configs that are still in it."""


@dataclass(frozen=True)
class LiveRun:
    """The last sign of life of a search that has not ended."""

    run: int
    """Id of the run."""
    state: RunState
    host: str
    """Name of the host and id of the process, such as `node-7:4711`."""
    at: str
    """Time of the sign by the clock of the database, UTC in ISO 8601."""
    age_s: float
    """Seconds since then, by the same clock."""


@dataclass(frozen=True)
class TrialOutline:
    """A trial without its samples."""

    config: str
    """Canonical text."""
    outcome: str
    stage: str
    """Stage in which it failed."""
    error: str
    latency_us: float | None
    ended_at: str
    """UTC, ISO 8601."""
