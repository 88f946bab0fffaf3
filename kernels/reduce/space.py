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
    """Bytes that a thread has in flight."""
    most_elements: int = 32768
    """Elements of a tile."""
    shortest_block: int = 512
    """Fewest columns of a block of a longer row."""
    sector_bytes: int = 64
    """Fewest bytes that a program reads of each row of a wider matrix, if it reduces over rows."""
    least_programs: float = 0.5
    """Twice the fewest programs for each multiprocessor, if there is work for as many."""
    most_programs: float = 16.0
    """Most programs for each multiprocessor among which results are split."""
    least_depth: int = 4
    """Fewest rows that a thread reads at once, if it reduces over more."""
    least_warps: int = 4
    """Fewest warps of a program that reduces over rows of a matrix that fills the card."""


SETTINGS = SpaceSettings()


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
    return (
        threads <= limits.threads_per_block
        # A thread has one access or more, unless a warp is too many for the tile, and keeps what it reads in registers.
        and (threads * width(problem) <= lanes or config["num_warps"] == 1)
        and bytes_each * stages <= threads * SETTINGS.most_bytes
        and lanes * config["DEPTH"] <= SETTINGS.most_elements
        # Blocks larger than the matrix read nothing more. Rows that begin anywhere end one access later.
        and block_m <= next_power_of_2(M)
        and block_n <= max(8, next_power_of_2(N + width(problem) - 1))
        and (_over_rows if problem["axis"] == "rows" else _within_rows)(problem, config, limits)
        and _splits(problem, config, limits)
        # Only a loop can be pipelined; its steps in flight wait in shared memory.
        and (stages == 1 or cdiv(shares(problem, config).steps, config["SPLIT"]) >= stages)
        and bytes_each * (stages - 1) <= limits.shared_bytes
        # Triton 3.6 compiles a pipelined loop over several rows wrongly if the program has one warp.
        and (stages == 1 or config["num_warps"] > 1)
    )


def _within_rows(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether a tile suits a reduction along rows."""
    N = problem["N"]
    return (
        config["DEPTH"] == 1
        # Short blocks make a long row a long loop of small loads, and several rows are for rows that are read at once.
        and config["BLOCK_N"] >= min(N, SETTINGS.shortest_block)
        and (config["BLOCK_M"] == 1 or config["BLOCK_N"] >= N)
    )


def _over_rows(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether a tile suits a reduction over rows."""
    M, N = problem.sizes
    lanes, threads = config["BLOCK_M"] * config["BLOCK_N"], config["num_warps"] * limits.warp_size
    steps, groups = shares(problem, config)
    return (
        config["BLOCK_N"] >= min(N, SETTINGS.sector_bytes // itemsize(problem.dtype))
        # A thread keeps a state for each column of one access, and reads DEPTH of them.
        and (lanes == threads * width(problem) or config["num_warps"] == 1)
        and config["DEPTH"] * config["BLOCK_M"] <= next_power_of_2(M)
        and (config["DEPTH"] >= SETTINGS.least_depth or config["DEPTH"] * config["BLOCK_M"] >= M)
        and (config["num_warps"] >= SETTINGS.least_warps or steps * groups < SETTINGS.least_warps * limits.sm_count)
    )


def _splits(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether results are split among programs if they are few, and only then."""
    (steps, groups), split = shares(problem, config), config["SPLIT"]
    return (
        2 * split * groups > min(steps * groups, int(SETTINGS.least_programs * limits.sm_count))
        and split <= steps
        and (split == 1 or split * groups <= SETTINGS.most_programs * limits.sm_count)
        # The last program joins the states of one row.
        and (split == 1 or problem["axis"] != "columns" or config["BLOCK_M"] == 1)
    )
