"""Default config of the reductions: a rule over sizes and the limits of the card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.kernels.reduce.space import lines_of, width
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
    waves: int = 4
    """Number of programs for each multiprocessor."""
    columns: int = 64
    """Bytes of the columns that a program reduces over rows, if there are few of them."""


SETTINGS = DefaultSettings()


def default(problem: Problem, limits: Limits) -> Mapping[str, Value]:
    """Return a config whose programs fill the card, with tiles of a few KB that are read at once."""
    return (_over_rows if problem["axis"] == "rows" else _within_rows)(problem, limits)


def _tile(problem: Problem, limits: Limits) -> int:
    """Return the elements of a tile: fewer of a small matrix."""
    M, N = problem.sizes
    spread = next_power_of_2(cdiv(M * N, SETTINGS.waves * limits.sm_count)) * itemsize(problem.dtype)
    return max(SETTINGS.least_bytes, min(SETTINGS.most_bytes, spread)) // itemsize(problem.dtype)


def _warps(problem: Problem, elements: int, lanes: int) -> int:
    """Return the warps of a tile."""
    warps = elements * itemsize(problem.dtype) // (32 * SETTINGS.bytes_each)
    return max(1, min(16, warps, lanes // (32 * width(problem))))


def _split(steps: int, groups: int, limits: Limits) -> int:
    """Return the number of programs that share results, a power of two."""
    wanted = SETTINGS.waves * limits.sm_count // groups
    return max(1, min(next_power_of_2(wanted + 1) // 2, next_power_of_2(steps + 1) // 2))


def _within_rows(problem: Problem, limits: Limits) -> dict[str, Value]:
    M, N = problem.sizes
    tile = _tile(problem, limits)
    block_n = max(8, min(tile, next_power_of_2(N + (width(problem) - 1 if N % 2 else 0))))
    block_m = max(1, min(next_power_of_2(M), tile // block_n))
    if problem["axis"] == "all":
        split = _split(cdiv(M, block_m) * cdiv(N, block_n), 1, limits)
    else:
        split = _split(cdiv(N, block_n), M, limits) if block_m == 1 else 1
    lanes = block_m * block_n
    return {
        "BLOCK_M": block_m,
        "BLOCK_N": block_n,
        "DEPTH": 1,
        "SPLIT": split,
        "num_warps": _warps(problem, lanes, lanes),
        "num_stages": 1,
    }


def _over_rows(problem: Problem, limits: Limits) -> dict[str, Value]:
    along, across = lines_of(problem)
    tile = _tile(problem, limits)
    depth = min(SETTINGS.bytes_each // 16, next_power_of_2(along))
    lanes = max(tile // depth, 32 * width(problem))
    block_n = max(8, min(next_power_of_2(across), lanes, SETTINGS.columns // itemsize(problem.dtype)))
    while block_n < min(lanes, next_power_of_2(across)) and lanes // block_n * depth > next_power_of_2(along):
        block_n *= 2
    block_m = max(1, min(lanes // block_n, next_power_of_2(along) // depth))
    lanes = block_m * block_n
    groups = cdiv(across, block_n)
    return {
        "BLOCK_M": block_m,
        "BLOCK_N": block_n,
        "DEPTH": depth,
        "SPLIT": _split(cdiv(along, block_m * depth), groups, limits),
        "num_warps": max(1, lanes // (32 * width(problem))),
        "num_stages": 1,
    }
