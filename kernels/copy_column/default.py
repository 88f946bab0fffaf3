"""Default config of copy_column: a rule over the memory of x, sizes and the width of an element."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.kernels.copy_column.space import ALONE
from tuner.kernels.spec import Limits, Problem, Value, itemsize, next_power_of_2


@dataclass(frozen=True)
class DefaultSettings:
    """Constants of the rule."""

    block: int = 1024
    """Largest number of rows in a program."""
    block_bytes: int = 4096
    """Bytes of out in a program that moves adjacent elements. Source: two accesses of 16 bytes a thread."""
    programs_per_sm: int = 4
    """Number of programs for each multiprocessor, below which blocks are halved."""
    dense_bytes: int = 32
    """Largest distance of two rows in bytes at which adjacent rows share a sector."""


SETTINGS = DefaultSettings()


def default(problem: Problem, limits: Limits, settings: DefaultSettings = SETTINGS) -> Mapping[str, Value]:
    """Return the kernel for what the card can read.

    Ordinary memory of the host is packed there, unless elements are adjacent: then it is a plain copy by the driver.
    """
    M, N = problem.sizes
    memory = problem["memory"]
    if memory == "pageable":
        return {"WAY": "driver" if N == 1 else "packed", **ALONE, "num_stages": 1}
    wide = N == 1 or (N * itemsize(problem.dtype) <= settings.dense_bytes and memory == "device")
    most = min(2 * settings.block, settings.block_bytes // itemsize(problem.dtype)) if wide else settings.block
    block = min(most, max(128, next_power_of_2(M // (limits.sm_count * settings.programs_per_sm))))
    return {"WAY": "kernel", "BLOCK": block, "WIDE": int(wide and block > 128), "num_warps": 4, "num_stages": 1}
