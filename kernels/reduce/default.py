"""Default config of the reductions: a rule over sizes and the limits of the card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.kernels.reduce.access import is_shifted
from tuner.kernels.reduce.space import SETTINGS as SPACE
from tuner.kernels.reduce.space import shares, width
from tuner.kernels.spec import Limits, Problem, Value, cdiv, itemsize, next_power_of_2


@dataclass(frozen=True)
class DefaultSettings:
    """Settings of the rule."""

    bytes_each: int = 64
    """Bytes that a thread reads at once."""
    most_bytes: int = 16384
    """Bytes of a tile."""
    least_bytes: int = 2048
    """Bytes of the tile of a small matrix, which is spread over the card."""
    programs: int = 4
    """Number of programs for each multiprocessor."""
    most_depth: int = 16
    """Most rows of a matrix of few rows, each of whose columns one thread reads."""
    depth: int = 4
    """Rows that a thread reads at once of a matrix of more rows."""
    warps: tuple[int, int] = (4, 8)
    """Warps of a program that reduces over rows of a small, and of a large matrix."""


SETTINGS = DefaultSettings()


def default(problem: Problem, limits: Limits) -> Mapping[str, Value]:
    """Return a config whose programs fill the card, with tiles of a few KB that are read at once."""
    tile = _over_rows(problem, limits) if problem["axis"] == "rows" else _within_rows(problem, limits)
    return {**tile, "SPLIT": _split(problem, tile, limits), "num_stages": 1}


def _spread_bytes(problem: Problem, limits: Limits) -> int:
    """Return the bytes of a tile that spreads the matrix over the card, a power of two."""
    M, N = problem.sizes
    return next_power_of_2(cdiv(M * N * itemsize(problem.dtype), SETTINGS.programs * limits.sm_count))


def _within_rows(problem: Problem, limits: Limits) -> dict[str, int]:
    """Return a tile that holds whole rows, or is a part of one."""
    M, N = problem.sizes
    size = itemsize(problem.dtype)
    tile = max(SETTINGS.least_bytes, min(SETTINGS.most_bytes, _spread_bytes(problem, limits))) // size
    longest = tile if problem["axis"] == "all" else SETTINGS.most_bytes // size
    reach = N + width(problem) - 1 if is_shifted(size, N, N) else N
    block_n = max(8, min(longest, next_power_of_2(reach)))
    block_m = max(1, min(next_power_of_2(M), tile // block_n)) if block_n >= N else 1
    warps = max(1, block_m * block_n * size // (SETTINGS.bytes_each * limits.warp_size))
    return {"BLOCK_M": block_m, "BLOCK_N": block_n, "DEPTH": 1, "num_warps": warps}


def _over_rows(problem: Problem, limits: Limits) -> dict[str, int]:
    """Return a tile of columns with one access for each thread, and the depth to which threads read at once."""
    M, N = problem.sizes
    rows, columns = next_power_of_2(M), max(8, next_power_of_2(N))
    depth = rows if rows <= SETTINGS.most_depth else SETTINGS.depth
    warps = SETTINGS.warps[_spread_bytes(problem, limits) >= SETTINGS.most_bytes]
    lanes = warps * limits.warp_size * width(problem)
    block_n = min(columns, max(SPACE.sector_bytes // itemsize(problem.dtype), lanes // (rows // depth)))
    block_m = min(rows // depth, lanes // block_n)
    warps = max(1, block_m * block_n // (limits.warp_size * width(problem)))
    return {"BLOCK_M": block_m, "BLOCK_N": block_n, "DEPTH": depth, "num_warps": warps}


def _split(problem: Problem, tile: Mapping[str, int], limits: Limits) -> int:
    """Return the number of programs that share a result, a power of two, so that all programs fill the card."""
    steps, groups = shares(problem, tile)
    if problem["axis"] == "columns" and tile["BLOCK_M"] > 1:
        return 1
    most = min(SETTINGS.programs * limits.sm_count // groups, steps)
    return next_power_of_2(most + 1) // 2 or 1
