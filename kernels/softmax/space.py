"""Feasible configs of softmax."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuner.kernels.spec import WAITING_STREAMS, Limits, Problem, cdiv, itemsize, next_power_of_2


@dataclass(frozen=True)
class SpaceSettings:
    """Limits of the search space."""

    most_columns: int = 32768
    """Number of columns of the longest row that one program holds in registers."""
    shortest_block: int = 256
    """Fewest columns of a block of a longer row."""


SETTINGS = SpaceSettings()


def valid(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether a config is feasible."""
    M, N = problem.sizes
    block_n, rows, shared = config["BLOCK_N"], config["ROWS"], config["SHARED"]
    threads = config["num_warps"] * limits.warp_size
    one_pass = block_n >= N
    # Number of values that a thread holds at once; the online kernel keeps a maximum and a sum beside each.
    held = cdiv(rows * block_n, threads) * (1 if one_pass or shared else 3)
    return (
        # A block longer than the row, rounded up, computes nothing more.
        block_n <= next_power_of_2(N)
        # Short blocks make a long row a long loop of small loads.
        and (one_pass or block_n >= SETTINGS.shortest_block)
        and rows <= next_power_of_2(M)
        and threads <= limits.threads_per_block
        # Threads without a value are idle, and values beyond a thread's registers spill.
        and (threads <= rows * block_n or config["num_warps"] == 1)
        and held <= limits.registers_per_thread // 2
        # Only a loop can be pipelined.
        and (config["num_stages"] == 1 or not (one_pass or shared))
        # Triton 3.6 compiles a pipelined loop over several rows wrongly if the program has one warp.
        and (config["num_stages"] == 1 or config["num_warps"] > 1 or rows == 1)
        # All blocks in flight but the one in registers wait in shared memory.
        and rows * block_n * itemsize(problem.dtype) * (config["num_stages"] - 1) <= limits.shared_bytes
        and (not shared or can_share(problem, config, limits))
    )


def can_share(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether sharing a row among programs helps, and they may wait for each other."""
    parts = cdiv(problem["N"], config["BLOCK_N"])
    return (
        config["ROWS"] == 1
        and parts > 1
        # One program holds a shorter row, and waits for no other.
        and problem["N"] > SETTINGS.most_columns
        # All programs of a row must run at once, even beside those of other streams.
        and parts <= limits.sm_count // WAITING_STREAMS
    )
