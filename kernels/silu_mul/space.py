"""Feasible configs of silu_mul."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.kernels.shared.elementwise import ACCESS_BYTES
from tuner.kernels.shared.elementwise_space import access_bytes, fits
from tuner.kernels.spec import Limits, Problem, itemsize

SHORTEST_SHIFTED = 256
"""Fewest columns of a row that may be shifted: its ends are computed one by one. Source: chosen."""


def valid(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether a config is feasible."""
    return fits(problem, config, limits, inputs=2, has_gaps=problem["packed"]) and (
        not config["SHIFTED"] or can_shift(problem, config)
    )


def can_shift(problem: Problem, config: Mapping[str, Any]) -> bool:
    """Return whether rows begin anywhere in 16 bytes, and a program takes a part of one."""
    return (
        problem["packed"]
        and itemsize(problem.dtype) == 2
        and access_bytes(problem, has_gaps=True) < ACCESS_BYTES
        and problem["N"] >= max(SHORTEST_SHIFTED, config["BLOCK"] // 2)
        # It has one block, and its reads take no hint.
        and config["STEPS"] == 1
        and not config["EVICT_FIRST"]
    )
