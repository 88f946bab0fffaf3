"""Default config of ops that normalise rows: a rule over sizes and the limits of the card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.kernels.shared import rows_space
from tuner.kernels.shared.rows_space import chunks, has_weights, valid
from tuner.kernels.spec import Limits, Problem, Value, itemsize, next_power_of_2


@dataclass(frozen=True)
class DefaultSettings:
    """Settings of the rule."""

    tile_bytes: int = 8192
    """Most bytes of several short rows that a program holds."""
    chunk_bytes: int = 256
    """Fewest bytes of a chunk of a row that has several."""
    thread_bytes: int = 32
    """Bytes of rows that a thread holds."""
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
    shared_waves: int = 1
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
    """Return a config with as many rows as fill a program, while each multiprocessor still has programs."""
    M, N = problem["M"], problem["N"]
    width, is_many = itemsize(problem.dtype), limits.sm_count < M
    block_n = _chunk(N, width) if is_many else next_power_of_2(N)
    row = block_n * chunks(N, block_n)
    rows = _largest_power_of_2(min(SETTINGS.tile_bytes // (row * width), M // limits.sm_count, rows_space.LARGEST_ROWS))
    # Each thread reads 16 bytes at once, also of a chunk.
    threads = min(rows * row * width // SETTINGS.thread_bytes, rows * block_n * width // 16, limits.threads_per_block)
    fewest = _largest_power_of_2(threads // limits.warp_size)
    for num_warps in (fewest, *(2**power for power in range(6))):
        config: dict[str, Value] = {"VARIANT": "whole", "BLOCK_N": block_n, "ROWS": rows, "STEPS": 1}
        config |= {"LATE": is_many and has_weights(problem), "num_warps": num_warps, "num_stages": 1}
        if valid(problem, config, limits):
            break
    return config


def _largest_power_of_2(most: int) -> int:
    """Return the largest power of two up to `most`; 1 for less."""
    return 1 << max(0, most.bit_length() - 1)


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
