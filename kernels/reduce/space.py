"""Feasible configs of the reductions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tuner.kernels.spec import Limits, Problem, cdiv, itemsize, next_power_of_2


@dataclass(frozen=True)
class SpaceSettings:
    """Limits of the search space."""

    most_bytes: int = 256
    """Bytes that a thread reads at once."""
    most_elements: int = 32768
    """Elements of a tile."""
    shortest_block: int = 512
    """Fewest columns of a block of a longer row."""
    sector_bytes: int = 64
    """Fewest bytes that a program reads of each row of a wider matrix, if it reduces over rows."""
    programs: int = 16
    """Number of programs for each multiprocessor among which results are split."""
    least_share: int = 8
    """Part of the programs that fill the card, from which on a config is in the space."""


SETTINGS = SpaceSettings()


class Lines(NamedTuple):
    """A problem as its results see it: each of `across` results has `along` elements."""

    along: int
    across: int


def lines_of(problem: Problem) -> Lines:
    """Return how many elements each result has, and how many results there are."""
    M, N = problem.sizes
    return {"columns": Lines(N, M), "rows": Lines(M, N), "all": Lines(M * N, 1)}[str(problem["axis"])]


def width(problem: Problem) -> int:
    """Return the number of elements of the widest access."""
    return 16 // itemsize(problem.dtype)


class Shares(NamedTuple):
    """The work of a config: steps of which each program does some, and groups of results."""

    steps: int
    """Number of tiles that are reduced to the results of one group."""
    groups: int
    """Number of programs without splitting."""


def shares(problem: Problem, config: Mapping[str, Any]) -> Shares:
    """Return the steps and groups of a config."""
    M, N = problem.sizes
    rows, columns = cdiv(M, config["BLOCK_M"] * config["DEPTH"]), cdiv(N, config["BLOCK_N"])
    return {"columns": Shares(columns, rows), "rows": Shares(rows, columns), "all": Shares(rows * columns, 1)}[
        str(problem["axis"])
    ]


def valid(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether a config is feasible."""
    M, N = problem.sizes
    block_m, block_n, stages = config["BLOCK_M"], config["BLOCK_N"], config["num_stages"]
    threads, lanes = config["num_warps"] * limits.warp_size, block_m * block_n
    bytes_each = config["DEPTH"] * lanes * itemsize(problem.dtype)
    steps, _ = shares(problem, config)
    return (
        threads <= limits.threads_per_block
        # A thread has one access or more, unless a warp is too many for the tile, and keeps what it reads in registers.
        and (threads * width(problem) <= lanes or config["num_warps"] == 1)
        and bytes_each <= threads * SETTINGS.most_bytes
        and lanes * config["DEPTH"] <= SETTINGS.most_elements
        # Blocks larger than the matrix read nothing more. Rows that begin anywhere end one access later.
        and block_m <= next_power_of_2(M)
        and block_n <= max(8, next_power_of_2(N + width(problem) - 1))
        and (_over_rows if problem["axis"] == "rows" else _within_rows)(problem, config, limits)
        and _splits(problem, config, limits)
        # Only a loop can be pipelined; its steps in flight wait in shared memory.
        and (stages == 1 or cdiv(steps, config["SPLIT"]) >= stages)
        and bytes_each * (stages - 1) <= limits.shared_bytes
        # Triton 3.6 compiles a pipelined loop over several rows wrongly if the program has one warp.
        and (stages == 1 or config["num_warps"] > 1)
    )


def _within_rows(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether a tile suits rows, each of which is reduced."""
    # Short blocks make a long row a long loop of small loads.
    return config["DEPTH"] == 1 and config["BLOCK_N"] >= min(problem["N"], SETTINGS.shortest_block)


def _over_rows(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether a tile suits columns, each of which is reduced."""
    M, N = problem.sizes
    lanes, threads = config["BLOCK_M"] * config["BLOCK_N"], config["num_warps"] * limits.warp_size
    return (
        config["BLOCK_N"] >= min(N, SETTINGS.sector_bytes // itemsize(problem.dtype))
        # A thread keeps a state for each column of one access, and reads DEPTH of them.
        and (lanes == threads * width(problem) or config["num_warps"] == 1)
        and config["DEPTH"] * config["BLOCK_M"] <= next_power_of_2(M)
    )


def _splits(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether results are split among programs if they are few, and only then."""
    (steps, groups), split = shares(problem, config), config["SPLIT"]
    filled = SETTINGS.programs * limits.sm_count
    if split == 1:
        return groups >= min(steps * groups, limits.sm_count) // SETTINGS.least_share
    return (
        split <= steps
        and split * groups <= filled
        and split * groups >= min(steps * groups, limits.sm_count) // SETTINGS.least_share
        # One program joins what the others found of several rows.
        and (problem["axis"] != "columns" or config["BLOCK_M"] == 1)
    )
