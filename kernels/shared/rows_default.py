"""Default config of ops that normalise rows: a rule over sizes and the limits of the card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.kernels.shared import rows_space
from tuner.kernels.shared.rows_space import chunks, valid
from tuner.kernels.spec import Limits, Problem, Value, itemsize, next_power_of_2


@dataclass(frozen=True)
class DefaultSettings:
    """Settings of the rule."""

    tile_bytes: int = 4096
    """Bytes of several short rows that a program holds."""
    chunk_bytes: int = 256
    """Fewest bytes of a chunk of a row that has several."""
    thread_bytes: tuple[int, int] = (16, 32)
    """Bytes that a thread holds: if all programs run at once, and of many rows."""
    loop_bytes: int = 16384
    """Bytes of a block of a row that is looped over; each thread reads 16 at once, or 32."""
    loop_warps: tuple[int, ...] = (16, 32, 8, 4)
    """Warps of such a program, best first."""
    stages: tuple[int, ...] = (3, 2, 1)
    """Stages of that loop, best first."""
    shared_columns: int = 32768
    """Number of columns from which few rows are shared by programs."""
    shortest_part: int = 2048
    """Fewest columns of a program that shares a row."""
    shared_waves: int = 4
    """Number of such programs for each multiprocessor, unless parts would be shorter."""
    shared_warps: tuple[int, ...] = (4, 2, 8, 16)
    """Warps of such a program, best first."""


SETTINGS = DefaultSettings()


def default(problem: Problem, limits: Limits) -> Mapping[str, Value]:
    """Return a config that holds whole rows; longer rows are shared if they are few, else looped over."""
    M, N = problem["M"], problem["N"]
    if SETTINGS.shared_columns <= N and limits.sm_count > M and (config := _shared(problem, limits)):
        return config
    return _whole(problem, limits) if rows_space.SETTINGS.most_columns >= N else _looped(problem, limits)


def _whole(problem: Problem, limits: Limits) -> Mapping[str, Value]:
    M, N = problem["M"], problem["N"]
    width, block_n = itemsize(problem.dtype), next_power_of_2(N)
    if limits.sm_count < M:
        block_n = _chunk(N, width)
    row = block_n * chunks(N, block_n)
    # Rows of a program: as many as fill it, while each multiprocessor still has programs.
    rows = min(next_power_of_2(SETTINGS.tile_bytes // (row * width)), next_power_of_2(M), rows_space.LARGEST_ROWS)
    while rows > 1 and rows * limits.sm_count > M:
        rows //= 2
    late = rows * limits.sm_count < M and any(problem.values.get(name) for name in ("weight", "bias"))
    a_thread = SETTINGS.thread_bytes[rows * limits.sm_count < M]
    warps = next_power_of_2(rows * row * width // (a_thread * limits.warp_size))
    # Each thread reads 16 bytes at once, also of a chunk.
    warps = min(limits.threads_per_block, max(limits.warp_size, rows * block_n * width // 16), warps * limits.warp_size)
    warps //= limits.warp_size
    for num_warps in (*(warps >> power for power in range(warps.bit_length())), 2, 4, 8, 16, 32):
        config: dict[str, Value] = {"VARIANT": "whole", "BLOCK_N": block_n, "ROWS": rows, "STEPS": 1, "LATE": late}
        config |= {"num_warps": num_warps, "num_stages": 1}
        if valid(problem, config, limits):
            break
    return config


def _chunk(N: int, width: int) -> int:
    """Return the columns of the longest chunks that leave fewest lanes idle."""
    shorter = block_n = next_power_of_2(N)
    while shorter := shorter // 2:
        count = chunks(N, shorter)
        if count > rows_space.SETTINGS.most_chunks or shorter * width < SETTINGS.chunk_bytes:
            break
        if shorter * count < block_n * chunks(N, block_n):
            block_n = shorter
    return block_n


def _shared(problem: Problem, limits: Limits) -> Mapping[str, Value] | None:
    """Return a config that shares each row among programs; None if none is feasible.

    A program's part is as short as fills the card a few times.
    """
    part = max(SETTINGS.shortest_part, problem["M"] * problem["N"] // (SETTINGS.shared_waves * limits.sm_count))
    block_n = next_power_of_2(part)
    while block_n < problem["N"]:
        for warps in SETTINGS.shared_warps:
            config: dict[str, Value] = {"VARIANT": "shared", "BLOCK_N": block_n, "ROWS": 1, "STEPS": 1, "LATE": False}
            config |= {"num_warps": warps, "num_stages": 1}
            if valid(problem, config, limits):
                return config
        block_n *= 2
    return None


def _looped(problem: Problem, limits: Limits) -> Mapping[str, Value]:
    block_n = SETTINGS.loop_bytes // itemsize(problem.dtype)
    for warps in SETTINGS.loop_warps:
        for stages in SETTINGS.stages:
            config: dict[str, Value] = {"VARIANT": "looped", "BLOCK_N": block_n, "ROWS": 1, "STEPS": 1, "LATE": False}
            config |= {"num_warps": warps, "num_stages": stages}
            if valid(problem, config, limits):
                return config
    return config
