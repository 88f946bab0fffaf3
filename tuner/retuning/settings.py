"""Thresholds and time limits of re-tuning."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RetuneSettings:
    """Thresholds, as shares, and limits of the rounds of one check."""

    threshold: float = 0.02
    """Gain that a new config must show, at the lower end of its interval, before it replaces an answer."""
    moved: float = 0.01
    """Change of a ratio, at the near end of its interval, beyond which it moved if source, compiler or libraries
    changed."""
    spread: float = 0.003
    """Standard deviation of the logarithm of a ratio between processes that run the same code, if earlier readings of
    the answer show no larger one. Source: 58 problems in 4 to 5 retunes of an H200; the median is 0.0028."""
    machine: float = 0.05
    """Change of all latencies alike beyond which the machine counts as changed. A ratio whose code and libraries are as
    they were must move by more than this, since noise between days reaches it first."""
    ahead: float = 0.01
    """Lead of another config, at the lower end of its interval, beyond which the order moved."""
    few: int = 5
    """Number of problems from which their median says how much the machine changed."""
    min_rounds: int = 20
    """Fewest rounds of a check that decides."""
    max_rounds: int = 100
    """Most rounds of a check."""
    check_s: float = 2.0
    """Time limit of the rounds of a check, in seconds."""
    first_look_s: float = 30.0
    """Time limit in seconds within which at least the first look of a slow kernel is taken."""
    candidates: int = 3
    """Number of configs after the answer's, of which the first that is feasible is its runner-up."""
    tries: int = 2
    """Times that a config is measured before a crash, a timeout or lack of memory counts as its own."""


SETTINGS = RetuneSettings()
