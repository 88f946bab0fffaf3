"""Default config of softmax: a rule over sizes and the limits of the card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.kernels.softmax import space
from tuner.kernels.softmax.space import valid
from tuner.kernels.spec import Limits, Problem, Value, next_power_of_2


@dataclass(frozen=True)
class DefaultSettings:
    """Settings of the rule, from an H200; the studies say how each was found."""

    parts: tuple[tuple[int, int], ...] = ((8192, 4), (16384, 16))
    """Columns and warps of a program that shares a row, best first."""
    block: int = 4096
    """Columns of a block of a row that one program loops over."""
    elements: int = 1024
    """Number of elements of several short rows that a program takes together."""
    elements_per_warp: int = 512
    """Number of elements for each warp."""


SETTINGS = DefaultSettings()


def default(problem: Problem, limits: Limits) -> Mapping[str, Value]:
    """Return a config that holds the whole row if 32 warps can; longer rows are shared, the longest are looped over."""
    M, N = problem.sizes
    row = next_power_of_2(N)
    longest = space.SETTINGS.most_columns
    for part, warps in SETTINGS.parts:
        config: dict[str, Value] = {"BLOCK_N": part, "ROWS": 1, "SHARED": True, "num_warps": warps, "num_stages": 1}
        if row > longest and valid(problem, config, limits):
            return config
    block_n = row if row <= longest else SETTINGS.block
    rows = max(1, min(next_power_of_2(M), SETTINGS.elements // block_n, 32))
    return {
        "BLOCK_N": block_n,
        "ROWS": rows,
        "SHARED": False,
        "num_warps": min(
            limits.threads_per_block // limits.warp_size, max(1, rows * block_n // SETTINGS.elements_per_warp)
        ),
        "num_stages": 1 if block_n == row else 2,
    }
