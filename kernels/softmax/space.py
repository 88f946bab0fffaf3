"""Feasible configs of softmax."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.kernels.spec import Limits, Problem, cdiv, next_power_of_2

MOST_COLUMNS = 32768
"""The longest row that one program holds with registers to spare."""


def valid(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    M, N = problem.sizes
    block_n, rows, shared = config["BLOCK_N"], config["ROWS"], config["SHARED"]
    threads = config["num_warps"] * limits.warp_size
    one_pass = block_n >= N
    # Values one thread holds at once; the online kernel keeps a maximum and a sum beside each.
    held = cdiv(rows * block_n, threads) * (1 if one_pass or shared else 3)
    return (
        # The row, rounded up, is the largest block that does anything.
        block_n <= next_power_of_2(N)
        # Short steps make a long row a long loop of small loads.
        and (one_pass or block_n >= 256)
        and rows <= next_power_of_2(M)
        and threads <= limits.threads_per_block
        # Threads without a value are idle; more values than a thread has registers spill.
        and (threads <= rows * block_n or config["num_warps"] == 1)
        and held <= limits.registers_per_thread // 2
        # Only a loop can be pipelined.
        and (config["num_stages"] == 1 or not (one_pass or shared))
        and (not shared or can_share(problem, config, limits))
    )


def can_share(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Whether a row is worth sharing, and its programs may wait for each other."""
    parts = cdiv(problem["N"], config["BLOCK_N"])
    return (
        config["ROWS"] == 1
        and parts > 1
        # One program holds a shorter row, and waits for nobody.
        and problem["N"] > MOST_COLUMNS
        # All of them must be running at some time, even while others like them run beside, on up to 16 streams.
        and parts <= limits.sm_count // 16
    )
