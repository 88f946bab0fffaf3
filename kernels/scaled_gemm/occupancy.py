"""Programs of scaled_gemm that run on a multiprocessor at the same time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.kernels.scaled_gemm.space import steps_in_registers, sums_held
from tuner.kernels.shared.tiling import stage_bytes, tile_count
from tuner.kernels.spec import Limits, Problem, cdiv

SYSTEM_BYTES = 1024
"""Bytes of shared memory that each program takes for the system."""
OTHER_REGISTERS = 64
"""Registers of a thread beside its sums."""


def programs_held(problem: Problem, config: Mapping[str, Any], limits: Limits) -> int:
    """Return the number of programs of `tiles` or `persistent` that a multiprocessor holds at once."""
    if config["VARIANT"] == "persistent":
        return int(config["PROGRAMS"])
    threads = config["num_warps"] * limits.warp_size
    registers = min(sums_held(problem, config, limits) // threads + OTHER_REGISTERS, limits.registers_per_thread)
    stages = config["num_stages"] - steps_in_registers(config, limits)
    program_bytes = stages * stage_bytes(problem, config) + SYSTEM_BYTES
    by_shared = (limits.shared_bytes + SYSTEM_BYTES) // program_bytes
    return max(1, min(by_shared, limits.registers_per_sm // (threads * registers)))


def programs_each(problem: Problem, config: Mapping[str, Any], limits: Limits) -> int:
    """Return the most tiles, or slices of them, that a multiprocessor computes."""
    return cdiv(tile_count(problem, config) * config["SPLIT_K"], limits.sm_count)


def rounds(problem: Problem, config: Mapping[str, Any], limits: Limits) -> int:
    """Return the number of times that a multiprocessor runs as many programs as it holds."""
    return cdiv(programs_each(problem, config, limits), programs_held(problem, config, limits))


def most_stages(problem: Problem, config: Mapping[str, Any], limits: Limits) -> int:
    """Return the most stages of `tiles`, three to six, with which all programs run at once; six if none do.

    With two, a single step is in flight, and they take as long as in two rounds. No more are of use than there are
    steps.
    """
    room = (limits.shared_bytes + SYSTEM_BYTES) // programs_each(problem, config, limits) - SYSTEM_BYTES
    stages = room // stage_bytes(problem, config) + steps_in_registers(config, limits)
    steps = cdiv(problem["K"], config["BLOCK_K"] * config["SPLIT_K"])
    return min(6, stages, max(3, steps)) if stages >= 3 else 6
