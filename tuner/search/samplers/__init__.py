"""Optuna samplers over the feasible configs of a problem, one file each.

A new sampler is a file with a subclass of `FeasibleSampler`, and a line in `_CLASSES`. A sampler's module is imported
when a search uses it, so that this package needs neither Optuna nor numpy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from tuner.errors import UsageError

if TYPE_CHECKING:
    from tuner.search.samplers.base import SamplerFactory

_CLASSES = {
    "gp": ("gaussian_process", "GaussianProcessSampler"),
    "tpe": ("tpe", "FeasibleTPESampler"),
    "random": ("uniform", "RandomSampler"),
    "grid": ("grid", "GridSampler"),
}
"""Module and class by the name that a user gives; the first is the default."""

SAMPLERS = tuple(_CLASSES)
DEFAULT_SAMPLER = SAMPLERS[0]


def checked(name: str) -> str:
    """Return the name of a sampler.

    Raises:
        UsageError: no sampler has this name.
    """
    if name not in _CLASSES:
        raise UsageError(f"samplers are {', '.join(SAMPLERS)}, not {name[:40]!r}")
    return name


def sampler_named(name: str) -> SamplerFactory:
    """Import and return the sampler of this name.

    Raises:
        UsageError: no sampler has this name.
    """
    module, sampler = _CLASSES[checked(name)]
    factory: SamplerFactory = getattr(import_module(f"{__name__}.{module}"), sampler)
    return factory
