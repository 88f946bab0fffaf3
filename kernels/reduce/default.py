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
    """Settings of the rule, from an H200."""

    depth: int = 4
    """Accesses that a thread makes at once; fewer only if the matrix has no more."""
    depth_of_rows: int = 8
    """Accesses that a thread makes at once if a warp reads whole rows of a matrix that fills the card."""
    warps: int = 8
    """Most warps of a program."""
    warps_each: int = 16
    """Number of warps for each multiprocessor that read long rows, at least, if each row has one program."""
    programs: int = 4
    """Number of programs for each multiprocessor."""
    programs_of_index: int = 2
    """Number of them that find indices over rows, whose states fill the registers; their loops are pipelined."""
    stages_of_index: int = 3
    """Stages of these loops."""
    most_depth: int = 16
    """Most rows of a matrix of few rows, each of whose columns one thread reads."""
    few_rows: int = 64
    """Most rows of a matrix whose rows a program reads at once, with `depth_of_rows`."""
    warps_of_few_rows: int = 2
    """Fewest warps of such a program."""


SETTINGS = DefaultSettings()


def default(problem: Problem, limits: Limits) -> Mapping[str, Value]:
    """Return a config whose programs fill the card, and whose threads have 64 bytes or more in flight."""
    finds_index = problem["axis"] == "rows" and problem["index"]
    config: dict[str, Value] = {**(_over_rows if problem["axis"] == "rows" else _within_rows)(problem, limits)}
    config |= {"SPLIT": 1, "num_stages": 1}
    steps, groups = shares(problem, config)
    if problem["axis"] != "columns" or tile_of(problem, config).rows == 1:
        programs = SETTINGS.programs_of_index if finds_index else SETTINGS.programs
        config["SPLIT"] = split = _power_below(min(programs * limits.sm_count // groups, steps))
        if finds_index and cdiv(steps, split) >= SETTINGS.stages_of_index:
            config["num_stages"] = SETTINGS.stages_of_index
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
    row, spread = next_power_of_2(reach(size, N)), _accesses(problem, limits)
    most, depth = SETTINGS.depth * SETTINGS.warps, SETTINGS.depth
    if problem["axis"] == "all":
        accesses = max(depth, min(most, spread))
    elif row > SETTINGS.depth_of_rows * each:  # as many warps for each row as fill the card together
        warps = next_power_of_2(cdiv(SETTINGS.warps_each * limits.sm_count, M))
        least = 1 if problem["kind"] == "logsumexp" else 2  # which exchanges maxima and sums between warps
        accesses = min(row // each, depth * max(least, min(SETTINGS.warps, warps)))
    elif row >= each:  # a warp for each row, without an exchange between warps
        depth = SETTINGS.depth_of_rows if spread >= 2 * SETTINGS.depth_of_rows else depth
        accesses = max(depth, row // each)
    else:
        accesses = max(depth, min(most // 2, spread))
    accesses = max(1, min(accesses, next_power_of_2(M) * row // each))
    depth = min(depth, accesses)
    return {"BLOCK_N": min(row, accesses * each), "DEPTH": depth, "num_warps": accesses // depth}


def _over_rows(problem: Problem, limits: Limits) -> dict[str, int]:
    """Return a tile as narrow as memory serves well, and the depth to which threads read at once."""
    M, N = problem.sizes
    size = itemsize(problem.dtype)
    each = ALIGNED_BYTES // size * WARP
    rows, columns = next_power_of_2(M), next_power_of_2(N)
    spread, sector = _accesses(problem, limits), SPACE.sector_bytes // size
    depth, least_warps, most_warps = SETTINGS.depth, SPACE.least_warps, SETTINGS.warps
    if rows <= SETTINGS.most_depth:
        depth = rows
    elif rows <= SETTINGS.few_rows:
        least_warps, depth = SETTINGS.warps_of_few_rows, SETTINGS.depth_of_rows
        if spread <= 2 * depth:  # many small programs for a small matrix
            depth, most_warps = max(1, rows * sector // (least_warps * each)), least_warps
    warps = max(least_warps, min(most_warps, spread // depth))
    warps = max(1, min(warps, rows // depth * columns // each))
    if rows // depth * columns < each:  # the whole matrix is less than one access of each thread
        depth = max(1, min(depth, rows * columns // each))
    block_n = min(columns, max(sector, warps * each // (rows // depth)))
    return {"BLOCK_N": block_n, "DEPTH": depth, "num_warps": warps}
