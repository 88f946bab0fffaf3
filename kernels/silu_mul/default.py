"""Default config of silu_mul."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.kernels.shared.elementwise_space import rule
from tuner.kernels.spec import Limits, Problem, Value


def default(problem: Problem, limits: Limits) -> Mapping[str, Value]:
    """Return the rule's config for an op that reads two inputs."""
    return {**rule(problem, limits, inputs=2, has_gaps=problem["packed"]), "SHIFTED": False}
