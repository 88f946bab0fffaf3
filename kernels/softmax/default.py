"""Default config of softmax: a rule over sizes and the limits of the card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.kernels.softmax import space
from tuner.kernels.softmax.space import valid
from tuner.kernels.spec import Limits, Problem, Value, itemsize, next_power_of_2


@dataclass(frozen=True)
class DefaultSettings:
    """Settings of the rule, from an H200; the studies say how each was found."""

    parts: tuple[tuple[int, int], ...] = ((8192, 4), (16384, 16), (32768, 16))
    """Columns and warps of a program that shares a row, best first."""
    loop: tuple[int, int] = (8192, 16)
    """Columns of a block, and warps, of a program that loops over a row."""
    stages: tuple[int, ...] = (3, 2, 1)
    """Stages of that loop, best first."""
    waves: int = 4
    """Number of rows for each multiprocessor from which rows of 16-bit floats are looped over: they stay in L2."""
    elements: int = 1024
    """Number of elements of several short rows that a program takes together."""
    elements_per_warp: int = 512
    """Number of elements for each warp."""


SETTINGS = DefaultSettings()


def default(problem: Problem, limits: Limits) -> Mapping[str, Value]:
    """Return a config that holds the whole row if a program can; longer rows are shared or looped over."""
    M, N = problem.sizes
    row = next_power_of_2(N)
    if row > space.SETTINGS.most_columns:
        return _of_long_rows(problem, limits)
    rows = max(1, min(next_power_of_2(M), SETTINGS.elements // row, 32))
    warps = min(limits.threads_per_block // limits.warp_size, max(1, rows * row // SETTINGS.elements_per_warp))
    return {"BLOCK_N": row, "ROWS": rows, "SHARED": False, "num_warps": warps, "num_stages": 1}


def _of_long_rows(problem: Problem, limits: Limits) -> Mapping[str, Value]:
    """Return a config that shares each row among programs, or one that loops over it.

    A row with too many parts is looped over. So are rows of 16-bit floats, if they fill the card: they are in L2 when
    they are read again. Those that are not aligned to 16 bytes gain from it already at one row for a multiprocessor.
    """
    M, N = problem.sizes
    waves = SETTINGS.waves if N * itemsize(problem.dtype) % 16 == 0 else 1
    loops = itemsize(problem.dtype) == 2 and waves * limits.sm_count <= M
    for part, warps in () if loops else SETTINGS.parts:
        config: dict[str, Value] = {"BLOCK_N": part, "ROWS": 1, "SHARED": True, "num_warps": warps, "num_stages": 1}
        if valid(problem, config, limits):
            return config
    block_n, warps = SETTINGS.loop
    for stages in SETTINGS.stages:
        config = {"BLOCK_N": block_n, "ROWS": 1, "SHARED": False, "num_warps": warps, "num_stages": stages}
        if valid(problem, config, limits):
            break
    return config
