"""Default config of the reductions: a rule over sizes and the limits of the card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.kernels.reduce.access import ALIGNED_BYTES, reach
from tuner.kernels.reduce.space import SETTINGS as SPACE
from tuner.kernels.reduce.space import WARP, shares, tile_of
from tuner.kernels.spec import Limits, Problem, Value, cdiv, itemsize, next_power_of_2


@dataclass(frozen=True)
class DefaultSettings:
    """Settings of the rule."""

    depth: int = 4
    """Accesses that a thread makes at once; fewer only if the matrix has no more."""
    warps: int = 8
    """Most warps of a program."""
    programs: int = 4
    """Number of programs for each multiprocessor."""
    most_depth: int = 16
    """Most rows of a matrix of few rows, each of whose columns one thread reads."""
    least_warps: int = 4
    """Fewest warps of a program that reduces over rows, if there is work for as many."""


SETTINGS = DefaultSettings()


def default(problem: Problem, limits: Limits) -> Mapping[str, Value]:
    """Return a config whose programs fill the card, and whose threads have 64 bytes in flight."""
    config: dict[str, Value] = {**(_over_rows if problem["axis"] == "rows" else _within_rows)(problem, limits)}
    config |= {"SPLIT": 1, "num_stages": 1}
    steps, groups = shares(problem, config)
    if problem["axis"] != "columns" or tile_of(problem, config).rows == 1:
        config["SPLIT"] = _power_below(min(SETTINGS.programs * limits.sm_count // groups, steps))
    return config


def _power_below(number: int) -> int:
    """Return the largest power of two up to a number, at least 1."""
    return max(1, next_power_of_2(number + 1) // 2)


def _accesses(problem: Problem, limits: Limits) -> int:
    """Return the number of accesses of a warp in a tile that spreads the matrix over the card, a power of two."""
    M, N = problem.sizes
    each = cdiv(M * N * itemsize(problem.dtype), SETTINGS.programs * limits.sm_count)
    return next_power_of_2(cdiv(each, ALIGNED_BYTES * WARP))


def _within_rows(problem: Problem, limits: Limits) -> dict[str, int]:
    """Return a tile that holds whole rows, or is a part of one."""
    M, N = problem.sizes
    size = itemsize(problem.dtype)
    each = ALIGNED_BYTES // size * WARP
    most = SETTINGS.depth * SETTINGS.warps
    accesses = max(SETTINGS.depth, min(most, _accesses(problem, limits)))
    row = next_power_of_2(reach(size, N))
    if problem["axis"] == "columns":  # a row that one program holds is not split
        accesses = max(accesses, min(most, cdiv(row, each)))
    accesses = max(1, min(accesses, next_power_of_2(M) * row // each))
    depth = min(SETTINGS.depth, accesses)
    return {"BLOCK_N": min(row, accesses * each), "DEPTH": depth, "num_warps": accesses // depth}


def _over_rows(problem: Problem, limits: Limits) -> dict[str, int]:
    """Return a tile as narrow as memory serves well, and the depth to which threads read at once."""
    M, N = problem.sizes
    size = itemsize(problem.dtype)
    each = ALIGNED_BYTES // size * WARP
    rows, columns = next_power_of_2(M), next_power_of_2(N)
    depth = rows if rows <= SETTINGS.most_depth else SETTINGS.depth
    warps = max(SETTINGS.least_warps, min(SETTINGS.warps, _accesses(problem, limits) // depth))
    warps = max(1, min(warps, rows // depth * columns // each))
    if rows // depth * columns < each:  # the whole matrix is less than one access of each thread
        depth = max(1, min(depth, rows * columns // each))
    block_n = min(columns, max(SPACE.sector_bytes // size, warps * each // (rows // depth)))
    return {"BLOCK_N": block_n, "DEPTH": depth, "num_warps": warps}
