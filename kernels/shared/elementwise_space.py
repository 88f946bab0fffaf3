"""Feasible configs of elementwise ops, and their default: rules over elements and bytes, the same for each op."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuner.kernels.shared.elementwise import ACCESS_BYTES
from tuner.kernels.spec import Limits, Problem, Value, cdiv, itemsize, next_power_of_2


@dataclass(frozen=True)
class SpaceSettings:
    """Limits of the search space."""

    small_block: int = 256
    """Elements of a block that is feasible however few elements there are."""
    most_bytes: int = 128
    """Most bytes of each input that a thread holds at once."""


@dataclass(frozen=True)
class DefaultSettings:
    """Settings of the default."""

    bytes_per_thread: int = 64
    """Bytes that a thread reads at once, of all inputs together, if there are enough elements for all threads."""
    warps: int = 4
    """Warps of a program."""
    waves: int = 2
    """Programs for each multiprocessor below which blocks are made smaller."""


SPACE = SpaceSettings()
DEFAULT = DefaultSettings()


def fits(problem: Problem, config: Mapping[str, Any], limits: Limits, inputs: int) -> bool:
    """Return whether a config is feasible for an op that reads this number of inputs."""
    elements = next_power_of_2(problem["M"]) * next_power_of_2(problem["N"])
    width = itemsize(problem.dtype)
    block, steps, stages = config["BLOCK"], config["STEPS"], config["num_stages"]
    threads = config["num_warps"] * limits.warp_size
    held = block * width // threads
    return (
        # More than all elements is idle.
        block * steps <= max(SPACE.small_block, elements)
        # A thread has at least one access of 16 bytes, and at most what its registers hold.
        and (held >= ACCESS_BYTES or config["num_warps"] == 1)
        and held <= SPACE.most_bytes
        and threads <= limits.threads_per_block
        # Only a loop can be pipelined, and not more blocks than it has.
        and stages <= steps
        # All blocks in flight but the one in registers wait in shared memory.
        and (stages == 1 or inputs * block * width * (stages - 1) <= limits.shared_bytes // 2)
    )


def rule(problem: Problem, limits: Limits, inputs: int) -> Mapping[str, Value]:
    """Return a block for each program, with a few accesses in flight for each thread; fewer if elements are few."""
    elements = problem["M"] * problem["N"]
    width = itemsize(problem.dtype)
    least = ACCESS_BYTES // width  # elements of an access
    per_thread = max(least, DEFAULT.bytes_per_thread // (inputs * width))
    warps = DEFAULT.warps

    def programs() -> int:
        return cdiv(elements, per_thread * warps * limits.warp_size)

    while programs() < DEFAULT.waves * limits.sm_count and per_thread > least:
        per_thread //= 2
    while programs() < DEFAULT.waves * limits.sm_count and warps > 1:
        warps //= 2
    block = per_thread * warps * limits.warp_size
    return {"BLOCK": block, "STEPS": 1, "EVICT_FIRST": True, "num_warps": warps, "num_stages": 1}
