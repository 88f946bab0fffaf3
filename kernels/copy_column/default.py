"""Default config of copy_column: a rule over the memory of x, sizes and the width of an element."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.kernels.copy_column.space import ALONE
from tuner.kernels.spec import Limits, Problem, Value, itemsize, next_power_of_2


@dataclass(frozen=True)
class DefaultSettings:
    """Constants of the rule. Source: measurements on an H200."""

    block: int = 1024
    """Largest number of rows in a program that reads the host's memory."""
    wide_bytes: int = 4096
    """Bytes of out in a program that moves 16 bytes at once: two accesses of each thread."""
    programs_per_sm: int = 4
    """Number of programs for each multiprocessor, below which blocks are halved."""
    dense_bytes: int = 32
    """Largest distance of two rows in bytes at which adjacent rows share a sector. The threads of a warp then read
    adjacent rows, whose sectors they share (2026-11-30: 3,303,669 rows of 4 bytes 6.7 us; if a thread reads adjacent
    rows, 13.8 us)."""
    dense_block: int = 512
    """Largest number of such rows in a program."""
    dense_warps: int = 2
    """Warps of such a program: each thread has 8 elements in flight."""
    adjacent_block: int = 4096
    """Largest number of adjacent elements in a program that moves them one by one."""
    adjacent_elements: int = 16
    """Number of such elements for each thread of such a program, if it has more than 4 warps."""
    driver_elements: int = 2**22
    """Number of adjacent elements that the kernel would move one by one, from which the driver copies them."""
    far_block: int = 128
    """Rows of a program if each is in a sector of its own: one for each thread."""


SETTINGS = DefaultSettings()

SPECIAL_MULTIPLE = 16
"""Multiples of which Triton compiles a kernel of its own. Only for these numbers of rows it moves 16 bytes at once,
because then the last access of a block is inside of the column or outside as a whole."""


def default(problem: Problem, limits: Limits, settings: DefaultSettings = SETTINGS) -> Mapping[str, Value]:
    """Return the kernel for what the card can read.

    Ordinary memory of the host is packed there, unless elements are adjacent: then it is a plain copy by the driver,
    as is a long column without gaps on the card that the kernel would move one by one.
    """
    M, N = problem.sizes
    memory, width = problem["memory"], itemsize(problem.dtype)
    is_wide = N == 1 and M % SPECIAL_MULTIPLE == 0
    if memory == "pageable" or (memory == "device" and N == 1 and not is_wide and settings.driver_elements <= M):
        return {"WAY": "driver" if N == 1 else "packed", **ALONE, "num_stages": 1}
    if is_wide:
        block = _block(problem, limits, settings, min(2 * settings.block, settings.wide_bytes // width))
        return _kernel(block, wide=block > 128)
    if memory == "pinned":
        return _kernel(_block(problem, limits, settings, settings.block))
    if N == 1:
        block = _block(problem, limits, settings, settings.adjacent_block)
        return _kernel(block, warps=max(4, block // (settings.adjacent_elements * limits.warp_size)))
    if N * width > settings.dense_bytes:
        return _kernel(settings.far_block)
    block = _block(problem, limits, settings, settings.dense_block)
    return _kernel(block, warps=settings.dense_warps if block == settings.dense_block else 4)


def _block(problem: Problem, limits: Limits, settings: DefaultSettings, most: int) -> int:
    """Return the rows of a program: `most`, or fewer if the card would have few programs."""
    return min(most, max(128, next_power_of_2(problem["M"] // (limits.sm_count * settings.programs_per_sm))))


def _kernel(block: int, wide: bool = False, warps: int = 4) -> Mapping[str, Value]:
    return {"WAY": "kernel", "BLOCK": block, "WIDE": int(wide), "num_warps": warps, "num_stages": 1}
