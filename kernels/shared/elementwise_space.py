"""Feasible configs of elementwise ops, and their default: rules over elements and bytes, the same for each op."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd
from typing import Any

from tuner.kernels.shared.elementwise import ACCESS_BYTES, MOST_PAST, columns_of, rows_of
from tuner.kernels.spec import Limits, Problem, Value, cdiv, itemsize, next_power_of_2

COPY_BYTES = 4
"""Bytes of the narrowest copy from device memory to shared memory beside which a program computes."""


@dataclass(frozen=True)
class SpaceSettings:
    """Limits of the search space."""

    small_block: int = 256
    """Number of elements of a block that is feasible for any problem. Source: chosen."""
    most_bytes: int = 64
    """Most bytes of each input that a thread reads at once. Source: 128 are never among the best on an H200."""


@dataclass(frozen=True)
class DefaultSettings:
    """Settings of the default. Source: all configs of some problems on an H200."""

    loop_bytes: int = 2**19
    """Number of bytes that each multiprocessor reads, from which programs loop over blocks."""
    loop_bytes_per_thread: int = 64
    """Number of bytes of all inputs that a thread of such a program reads: 16 of each input in each block."""
    bytes_per_thread: int = 32
    """Bytes of each input that a thread reads at once in a program without a loop."""
    warps: int = 4
    """Warps of a program."""
    unaligned_elements: int = 8
    """Elements that a thread reads at once if rows do not begin at multiples of 16 bytes and each multiprocessor reads
    less than `loop_bytes`. They are moved one by one by small programs, since the card runs few waves of them. A
    multiprocessor holds 32 programs but 64 warps, so programs of one warp would fill half of it (H200, 2026-11-30: gelu
    of 16,384 x 385 by four warps 15.1 us, by one with 16 elements a thread 21.4 us)."""
    waves: int = 2
    """Number of programs for each multiprocessor below which blocks are made smaller."""
    unaligned_waves: float = 1.5
    """As `waves`, if rows do not begin at multiples of 16 bytes: gelu of 11 x 10,985 takes 2.3 us with 236 programs and
    3.0 us with 472 (H200, 2026-11-30)."""


SPACE = SpaceSettings()
DEFAULT = DefaultSettings()


def access_bytes(problem: Problem, has_gaps: bool) -> int:
    """Return the bytes of the widest access that the starts of rows are aligned to, if rows have gaps."""
    return gcd(ACCESS_BYTES, problem["N"] * itemsize(problem.dtype)) if has_gaps else ACCESS_BYTES


def fits(problem: Problem, config: Mapping[str, Any], limits: Limits, inputs: int, has_gaps: bool) -> bool:
    """Return whether a config is feasible for an op that reads this number of inputs."""
    elements = next_power_of_2(problem["M"]) * next_power_of_2(problem["N"])
    width = itemsize(problem.dtype)
    block, steps, stages = config["BLOCK"], config["STEPS"], config["num_stages"]
    threads = config["num_warps"] * limits.warp_size
    held = block * width // threads
    return (
        # A program is no larger than the tensor.
        block * steps <= max(SPACE.small_block, elements)
        # A thread has at least one access of 16 bytes, and at most what its registers hold.
        and ACCESS_BYTES <= held <= SPACE.most_bytes
        and threads <= limits.threads_per_block
        # Only a loop can be pipelined, and not more blocks than it has.
        and stages <= steps
        # Triton 3.6 compiles a pipelined loop over several rows wrongly if the program has one warp.
        and (stages == 1 or config["num_warps"] > 1 or rows_of(problem, block) == 1)
        # Its copies to shared memory take no hint, and at least 4 bytes at once.
        and (stages == 1 or (not config["EVICT_FIRST"] and access_bytes(problem, has_gaps) >= COPY_BYTES))
        # All blocks in flight but the one in registers wait in shared memory. The loops with and without masks have
        # buffers of their own.
        and (stages == 1 or inputs * block * width * (stages - 1) <= limits.shared_bytes // 2)
    )


def rule(problem: Problem, limits: Limits, inputs: int, has_gaps: bool) -> Mapping[str, Value]:
    """Return a loop if each multiprocessor has many blocks, else a block a program, smaller if elements are few."""
    elements = problem["M"] * problem["N"]
    width = itemsize(problem.dtype)
    least = ACCESS_BYTES // width * limits.warp_size  # elements of a warp with one access for each thread
    steps = loop_steps(problem, least * DEFAULT.warps, inputs, has_gaps)
    is_large = elements * width * inputs >= DEFAULT.loop_bytes * limits.sm_count
    if steps > 1 and is_large:
        return _config(least * DEFAULT.warps, DEFAULT.warps, steps)
    is_unaligned = access_bytes(problem, has_gaps) < ACCESS_BYTES and not is_large
    warps = DEFAULT.warps
    each = DEFAULT.unaligned_elements if is_unaligned else DEFAULT.bytes_per_thread // width
    block = each * warps * limits.warp_size
    waves = DEFAULT.unaligned_waves if is_unaligned else DEFAULT.waves
    while cdiv(elements, block) < waves * limits.sm_count and block > least:
        block //= 2
        warps = min(warps, block // least)
    # Results of several inputs stay in L2 if these leave it first.
    return _config(block, warps, 1, evicts_first=is_unaligned and inputs > 1)


def loop_steps(problem: Problem, block: int, inputs: int, has_gaps: bool) -> int:
    """Return the blocks of a program that loops; 1 if rows are not aligned, or end in the middle of a loop."""
    steps = DEFAULT.loop_bytes_per_thread // ACCESS_BYTES // inputs
    if not has_gaps:
        return steps
    if access_bytes(problem, has_gaps) < ACCESS_BYTES:
        return 1
    blocks = cdiv(problem["N"], columns_of(problem["N"], block))
    while cdiv(blocks, steps) * steps > (1 + MOST_PAST) * blocks:
        steps //= 2
    return steps


def _config(block: int, warps: int, steps: int, evicts_first: bool = False) -> Mapping[str, Value]:
    """Return the config of a loop over blocks that are all in flight, or of one block."""
    return {"BLOCK": block, "STEPS": steps, "EVICT_FIRST": evicts_first, "num_warps": warps, "num_stages": steps}
