"""Tiles of the reductions, and their feasible configs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tuner.kernels.reduce.access import ALIGNED_BYTES, reach
from tuner.kernels.spec import Limits, Problem, cdiv, itemsize, next_power_of_2

WARP = 32
"""Number of threads of a warp."""


@dataclass(frozen=True)
class SpaceSettings:
    """Limits of the search space."""

    most_bytes: int = 256
    """Bytes that a thread has in flight."""
    most_elements: int = 32768
    """Elements of a tile."""
    shortest_block: int = 512
    """Fewest columns of a block of a longer row."""
    longest_of_several: int = 2048
    """Most columns of rows of which a program takes several in blocks."""
    most_blocks: int = 16
    """Most blocks of such a row."""
    sector_bytes: int = 64
    """Fewest bytes that a program reads of each row of a wider matrix, if it reduces over rows."""
    least_depth: int = 4
    """Fewest rows that a thread reads at once, if it reduces over more."""
    least_warps: int = 4
    """Fewest warps of a program that loops over rows of a matrix that fills the card."""
    least_programs: float = 0.25
    """Fewest programs for each multiprocessor, if there is work for as many."""
    most_programs: float = 16.0
    """Most programs for each multiprocessor among which results are split."""


SETTINGS = SpaceSettings()


class Tile(NamedTuple):
    """Rows and columns that a program reads at once: DEPTH accesses of 16 bytes by each thread."""

    rows: int
    columns: int


class Shares(NamedTuple):
    """The work of a config."""

    steps: int
    """Number of tiles that are reduced to the same results."""
    groups: int
    """Number of groups of results, each of which has SPLIT programs."""


def tile_of(problem: Problem, config: Mapping[str, Any]) -> Tile:
    """Return the tile of a config. Without rows, its threads cannot read as many columns."""
    elements = config["DEPTH"] * config["num_warps"] * WARP * ALIGNED_BYTES // itemsize(problem.dtype)
    return Tile(elements // config["BLOCK_N"], config["BLOCK_N"])


def shares(problem: Problem, config: Mapping[str, Any]) -> Shares:
    """Return the steps and groups of a config."""
    M, N = problem.sizes
    tile = tile_of(problem, config)
    rows, columns = cdiv(M, tile.rows), cdiv(N, tile.columns)
    by_axis = {"columns": Shares(columns, rows), "rows": Shares(rows, columns), "all": Shares(rows * columns, 1)}
    return by_axis[str(problem["axis"])]


def valid(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether a config is feasible."""
    M, N = problem.sizes
    stages, depth, warps = config["num_stages"], config["DEPTH"], config["num_warps"]
    tile = tile_of(problem, config)
    return (
        warps * WARP <= limits.threads_per_block
        # What a thread has in flight waits in its registers, or in shared memory if steps are pipelined.
        and depth * ALIGNED_BYTES * stages <= SETTINGS.most_bytes
        and depth * ALIGNED_BYTES * WARP * warps * (stages - 1) <= limits.shared_bytes
        # Tiles larger than the matrix read nothing more, and none is smaller than one access of one warp.
        and 1 <= tile.rows <= (max(next_power_of_2(M), 1) if depth * warps > 1 else tile.rows)
        and tile.columns <= next_power_of_2(reach(itemsize(problem.dtype), N))
        and tile.rows * tile.columns <= SETTINGS.most_elements
        and (_over_rows if problem["axis"] == "rows" else _within_rows)(problem, config, tile, limits)
        and _splits(problem, config, tile, limits)
    )


def _within_rows(problem: Problem, config: Mapping[str, Any], tile: Tile, limits: Limits) -> bool:
    """Return whether a tile suits a reduction along rows."""
    N = problem["N"]
    # Short blocks make a long row a long loop of small loads.
    if tile.rows == 1:
        return tile.columns >= min(N, SETTINGS.shortest_block)
    return tile.columns >= N or (
        tile.columns >= max(SETTINGS.sector_bytes // itemsize(problem.dtype), cdiv(N, SETTINGS.most_blocks))
        and SETTINGS.longest_of_several >= N
    )


def _over_rows(problem: Problem, config: Mapping[str, Any], tile: Tile, limits: Limits) -> bool:
    """Return whether a tile suits a reduction over rows."""
    M, N = problem.sizes
    steps, groups = shares(problem, config)
    return (
        tile.columns >= min(N, SETTINGS.sector_bytes // itemsize(problem.dtype))
        # A thread keeps a state for each column of one access, and reads DEPTH rows of them.
        and tile.rows % config["DEPTH"] == 0
        and (config["DEPTH"] >= SETTINGS.least_depth or tile.rows >= M)
        and (
            config["num_warps"] >= SETTINGS.least_warps
            or steps == 1
            or steps * groups < SETTINGS.least_warps * limits.sm_count
        )
    )


def _splits(problem: Problem, config: Mapping[str, Any], tile: Tile, limits: Limits) -> bool:
    """Return whether results are split among programs if they are few, and whether the loop can be pipelined."""
    (steps, groups), split = shares(problem, config), config["SPLIT"]
    return (
        2 * split * groups > min(steps * groups, int(2 * SETTINGS.least_programs * limits.sm_count))
        and split <= steps
        and (split == 1 or split * groups <= SETTINGS.most_programs * limits.sm_count)
        # The last program joins the states of one row.
        and (split == 1 or problem["axis"] != "columns" or tile.rows == 1)
        and (config["num_stages"] == 1 or cdiv(steps, split) >= config["num_stages"])
        # Triton 3.6 compiles a pipelined loop over several rows wrongly if the program has one warp.
        and (config["num_stages"] == 1 or config["num_warps"] > 1)
    )
