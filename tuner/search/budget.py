"""The limits of a search."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Budget:
    """Limits at which a search stops measuring. None is no limit."""

    trials: int | None = None
    """Maximum number of configs, known ones included."""
    seconds: float | None = None
    """Time limit of the search, the interleaved comparison included. The wait for a device that another search holds is
    not counted."""
    min_improvement_probability: float | None = None
    """Stop when no untried config has a higher probability than this of beating the best by 1 %.

    A sampler that estimates this probability first tries every choice of a knob. Other samplers never stop for it.
    """


UNLIMITED = Budget()
