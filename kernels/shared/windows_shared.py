"""Estimated time of pooling if the threads of a program share windows of nhwc and load elements one by one.

Channels that are odd in number are read in 2 bytes, which no asynchronous copy moves. A thread then spends more on the
address and mask of each pixel than on its elements, so it has several channels of each pixel. As in `windows_estimate`,
what overlaps is added up by a norm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, log2
from typing import Any

from tuner.kernels.shared.overlapped import overlapped
from tuner.kernels.shared.windows import Windows, power_of_2_in
from tuner.kernels.shared.windows_accesses import far_of_channels
from tuner.kernels.shared.windows_estimate import COEFFICIENTS, PROGRAMS_PER_SM, WARPS_PER_SM
from tuner.kernels.shared.windows_launch import tiles, unrolled
from tuner.kernels.shared.windows_space import steps
from tuner.kernels.spec import Limits, cdiv

LEAST_COPY = 4
"""Fewest bytes of an asynchronous copy."""


@dataclass(frozen=True)
class SharedCoefficients:
    """Coefficients of the estimate.

    Instructions and registers are those of the machine code of 44 configs (ptxas of Triton 3.6.0); those that say
    "fitted" are fitted to 72 configs of three problems on an NVIDIA H200 (2026-11-30).
    """

    thread: float = 40.0
    """Instructions of a thread beside those below; fitted."""
    step: float = 25.0
    """Instructions of a step of the loop."""
    pixel: float = 11.0
    """Instructions for the address and mask of a pixel."""
    element: float = 4.1
    """Instructions for each element that is loaded, converted and combined."""
    unrolled: float = 0.6
    """Share of the instructions for pixels and elements if the loop is unrolled."""
    exchange: float = 6.0
    """Instructions for each of a thread's channels whose values several warps exchange."""
    registers: tuple[float, float] = (40.0, 1.8)
    """Registers of a thread: beside its loads, and for each element in flight."""
    step_us: float = 0.3
    """Time in which a step waits for its loads; fitted."""
    join_us: float = 0.9
    """Time in which programs that share a window exchange their parts; fitted."""
    gaps: float = 0.4
    """Further share of the time of device memory for each halving of the share read of the bytes reached; fitted."""
    issue: float = 1.0
    """Cycles of one of the four schedulers for each instruction of a warp; fitted."""
    sharpness: float = 2.0
    """Exponent of the norm; fitted."""


SHARED = SharedCoefficients()


def reads_one_by_one(found: Windows) -> bool:
    """Return whether threads that share windows of nhwc load fewer bytes at once than an asynchronous copy moves."""
    return found.is_nhwc and power_of_2_in(found.vector, found.channels) * found.element_bytes < LEAST_COPY


def shared_estimate(
    found: Windows, config: Mapping[str, Any], limits: Limits, *, c: SharedCoefficients = SHARED
) -> float:
    """Return the estimated time in us of a config of `reduced` whose threads load elements one by one."""
    block_n, block_k, split, warps = (int(config[name]) for name in ("BLOCK_N", "BLOCK_K", "SPLIT", "num_warps"))
    mhz, memory = COEFFICIENTS.mhz, limits.gb_per_s or COEFFICIENTS.gb_per_s
    # Lanes, then warps, are along channels; further ones are along pixels.
    along = min(limits.warp_size * warps, block_n)
    channels, pixels = block_n // along, max(1.0, block_k * along / (limits.warp_size * warps))
    elements = channels * pixels

    at_once = unrolled(found, config)
    count = cdiv(steps(found, block_k), split)
    body = c.pixel * pixels + c.element * elements
    instructions = c.thread + (at_once * c.unrolled * body if at_once else count * (c.step + body))
    if along < limits.warp_size * warps:
        instructions += c.exchange * channels
    run = instructions / mhz

    registers = min(limits.registers_per_thread, c.registers[0] + c.registers[1] * max(1, at_once) * elements)
    by_registers = limits.registers_per_sm // (warps * limits.warp_size * cdiv(int(registers), 8) * 8)
    programs = tiles(found, config) * split
    waves = ceil(programs / (limits.sm_count * max(1, min(PROGRAMS_PER_SM, WARPS_PER_SM // warps, by_registers))))

    wait = COEFFICIENTS.instruction_cycles * run + c.step_us * (1 if at_once else count)
    image = found.images * found.channels * found.rows.size * found.columns.size * found.element_bytes
    return COEFFICIENTS.start_us + overlapped(
        c.sharpness,
        waves * (wait + (c.join_us if split > 1 else 0.0)),
        c.issue * programs * warps * run / 4 / limits.sm_count,
        image / memory / 1e3 * (1 + c.gaps * log2(far_of_channels(found, block_n))),
        programs * COEFFICIENTS.program_us,
    )
