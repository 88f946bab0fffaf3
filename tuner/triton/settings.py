"""Settings of autotuned functions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class AutotuneSettings:
    """Limits of what is captured and kept, and the effort of a search in mode `tune`."""

    max_values: int = 65_536
    """Number of elements up to which a tensor of integers is captured by value."""
    max_sampled: int = 1 << 20
    """Number of elements of a tensor of floats that its statistics are computed from."""
    max_grids: int = 4096
    """Number of grids that are evaluated for one call."""
    max_captured: int = 2000
    """Number of calls that a process captures."""
    max_choices: int = 65_536
    """Number of keys of one function whose configs are kept; then the oldest is looked up again when it recurs."""
    effort: str = "normal"
    """Effort of the search of a call in mode `tune`."""
