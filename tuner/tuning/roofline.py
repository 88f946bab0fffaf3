"""The roofline limits of a card that hold for a problem."""

from __future__ import annotations

from tuner import catalog
from tuner.errors import NoDevice, UnknownName
from tuner.kernels.spec import Problem
from tuner.records import RooflineLimits


def limits_for(reference: str, problem: Problem, limits: RooflineLimits | None) -> RooflineLimits | None:
    """Return the roofline limits of a card for a problem; None if they are not known, or tell nothing about it.

    If an operand is in the host's memory, its link to the card sets the limit, which is not among those measured.

    Args:
        reference: the kernel. If its code cannot be loaded, its operands are taken to be on the card.
        limits: the limits of the card; None if they are not measured.
    """
    try:
        kernel = catalog.resolve(reference)
    except (NoDevice, UnknownName):
        return limits
    return None if kernel.is_on_host(problem) else limits
