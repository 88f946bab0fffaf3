"""Feasible configs of silu."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.kernels.shared.elementwise_space import fits
from tuner.kernels.spec import Limits, Problem


def valid(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether a config is feasible."""
    return fits(problem, config, limits, inputs=1, has_gaps=problem["M"] > 1)
