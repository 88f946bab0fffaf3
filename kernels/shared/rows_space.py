"""Knobs and feasible configs of ops that normalise rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuner.kernels.spec import (
    MAX_SIZE,
    WAITING_STREAMS,
    Knob,
    Limits,
    Problem,
    SizeLimit,
    Value,
    cdiv,
    itemsize,
    next_power_of_2,
)


@dataclass(frozen=True)
class SpaceSettings:
    """Limits of the search space. Source: chosen, so that a problem has some hundred configs at most."""

    most_columns: int = 32768
    """Number of columns of the longest row that one program holds in registers."""
    most_chunks: int = 8
    """Largest number of chunks of such a row."""
    shortest_chunk: int = 128
    """Fewest bytes of a chunk of a row that has several."""
    most_values: int = 64
    """Largest number of values of a row that a thread holds."""
    shortest_odd: int = 256
    """Fewest columns of an odd row that may be read 16 bytes at once."""
    largest_tile: int = 16384
    """Largest number of elements of several rows that a program holds."""
    shortest_looped: int = 16384
    """Fewest columns of a row that is looped over."""
    looped_blocks: tuple[int, int] = (2048, 16384)
    """Fewest and most columns of a block of a row that is looped over."""
    shortest_shared: int = 8192
    """Fewest columns of a row that programs share."""
    reduction_bytes: int = 1024
    """Shared memory in which the warps of a program join their sums, in bytes."""
    shared_waves: int = 4
    """Number of rows for each multiprocessor up to which programs share rows that one of them can hold."""


SETTINGS = SpaceSettings()

SHARED_REGISTERS = 128
"""Most registers of a thread of a program that shares a row. So several such programs run on a multiprocessor at once,
and none waits for one that cannot start."""
ODD_GROUP = 8
"""Number of elements of 16 bits in 16 bytes."""
LARGEST_ROWS = 128
"""Largest number of rows of a program."""

KNOBS = (
    Knob(
        "VARIANT",
        ("whole", "odd", "looped", "shared"),
        "a program holds whole rows, also odd ones in 16 bytes at once, or reads a row twice, or programs share a row",
    ),
    Knob("BLOCK_N", tuple(2**power for power in range(16)), "columns of a chunk that is read at once"),
    Knob(
        "ROWS",
        tuple(2**power for power in range(LARGEST_ROWS.bit_length())),
        "rows that a program holds; short rows need several to fill it",
    ),
    Knob("STEPS", (1, 2, 4, 8, 16), "times that a program takes rows; weights stay in its registers meanwhile"),
    Knob("LATE", (False, True), "read weights after the sums: fewer registers, but programs wait for them", False),
    Knob("num_warps", (1, 2, 4, 8, 16, 32), "warps that share a program's rows"),
    Knob("num_stages", (1, 2, 3, 4), "blocks or rows in flight"),
)
PARTS: tuple[Mapping[str, tuple[Value, ...]], ...] = (
    {"VARIANT": ("whole",), "num_stages": (1, 2, 3)},
    {"VARIANT": ("odd",), "ROWS": (1,), "LATE": (False,), "num_stages": (1, 2, 3)},
    {"VARIANT": ("looped",), "ROWS": (1,), "STEPS": (1,), "LATE": (False,)},
    {"VARIANT": ("shared",), "ROWS": (1,), "STEPS": (1,), "LATE": (False,), "num_stages": (1,)},
)
"""Knobs of each variant: only loops have stages, and only whole rows are short enough for several."""

SIZE_LIMITS = (
    SizeLimit("M", 2**31 - 2**11),  # a group of 128 rows
    SizeLimit("N", 2**31 - 2**18),  # blocks of 16,384 columns, four of them in flight
)


def valid(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether a config is feasible."""
    if config["num_warps"] * limits.warp_size > limits.threads_per_block:
        return False
    if config["VARIANT"] == "whole":
        return _can_hold(problem, config, limits, problem["N"])
    if config["VARIANT"] == "odd":
        return (
            can_be_odd(problem)
            and config["ROWS"] == 1
            and _can_hold(problem, config, limits, odd_columns(problem["N"]))
        )
    if config["ROWS"] > 1 or config["STEPS"] > 1 or config["LATE"]:
        return False
    if config["VARIANT"] == "looped":
        return _can_loop(problem, config, limits)
    return _can_share(problem, config, limits)


def chunks(N: int, block_n: int) -> int:
    """Return the number of chunks of `block_n` columns in a row."""
    return cdiv(N, block_n)


def most_values(num_warps: int, limits: Limits) -> int:
    """Return the number of values of a row that each thread of a program can hold beside what it computes."""
    registers = min(limits.registers_per_thread, limits.registers_per_sm // (num_warps * limits.warp_size))
    return min(SETTINGS.most_values, registers // 2)


def vectors(problem: Problem) -> int:
    """Return the number of vectors with an element for each column: weight and bias."""
    return sum(bool(problem.values.get(name)) for name in ("weight", "bias"))


def can_be_odd(problem: Problem) -> bool:
    """Return whether rows begin in the middle of 16 bytes, and have an element of each of a program's first groups."""
    return itemsize(problem.dtype) == 2 and problem["N"] % ODD_GROUP != 0 and problem["N"] >= SETTINGS.shortest_odd


def odd_columns(N: int) -> int:
    """Return the most elements in the groups of 16 bytes that a row of N elements is in."""
    return N + ODD_GROUP - 1


def _can_hold(problem: Problem, config: Mapping[str, Any], limits: Limits, N: int) -> bool:
    """Return whether a program can hold rows that are in N columns."""
    M = problem["M"]
    block_n, rows, steps, stages = (config[name] for name in ("BLOCK_N", "ROWS", "STEPS", "num_stages"))
    count = chunks(N, block_n)
    tile = rows * block_n * count
    threads = config["num_warps"] * limits.warp_size
    width = itemsize(problem.dtype)
    return (
        SETTINGS.most_columns >= N
        and block_n <= next_power_of_2(N)
        # Chunks are for rows that a single block, or chunks twice as long, hold with more idle lanes.
        and (
            count == 1
            or (
                count <= SETTINGS.most_chunks
                and block_n * width >= SETTINGS.shortest_chunk
                and block_n * count < 2 * block_n * chunks(N, 2 * block_n)
            )
        )
        and rows <= next_power_of_2(M)
        and (rows == 1 or tile <= SETTINGS.largest_tile)
        # Threads that read less than 8 bytes at once make more instructions of as many bytes.
        and (config["num_warps"] == 1 or threads * 8 <= rows * block_n * width)
        and cdiv(tile, threads) <= most_values(config["num_warps"], limits)
        # Programs that take rows several times leave no multiprocessor idle.
        and (steps == 1 or rows * steps * limits.sm_count <= M)
        # Their loop counts groups of rows in 32 bits, up to one step, the number of programs, past the last.
        and (steps == 1 or cdiv(M, rows) + cdiv(M, rows * steps) + ODD_GROUP <= MAX_SIZE)
        # Weights that are read once for several rows are read first.
        and (not config["LATE"] or (config["VARIANT"] == "whole" and steps == 1 and vectors(problem) > 0))
        # Only a loop can be pipelined. Rows in flight wait in shared memory.
        and (stages == 1 or steps > 1)
        and tile * width * (1 + problem.values.get("residual", False)) * (stages - 1) <= limits.shared_bytes // 2
        # Triton 3.6 compiles a pipelined loop over several rows wrongly if the program has one warp.
        and (stages == 1 or config["num_warps"] > 1 or rows == 1)
    )


def _can_loop(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether a program can loop over a row."""
    block_n, stages = config["BLOCK_N"], config["num_stages"]
    threads = config["num_warps"] * limits.warp_size
    width = itemsize(problem.dtype)
    given = [problem.values.get(name, False) for name in ("residual", "weight", "bias")]
    read_together = 1 + max(given[0], given[1] + given[2])
    fewest, most = SETTINGS.looped_blocks
    return (
        problem["N"] > SETTINGS.shortest_looped
        and fewest <= block_n <= most
        and threads * 16 <= block_n * width
        # Two sums stand beside each value.
        and 3 * block_n // threads <= most_values(config["num_warps"], limits)
        # All blocks in flight but those in registers wait in shared memory.
        and block_n * width * read_together * (stages - 1) <= limits.shared_bytes - SETTINGS.reduction_bytes
    )


def _can_share(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether programs can share a row."""
    M, N, block_n = problem["M"], problem["N"], config["BLOCK_N"]
    threads = config["num_warps"] * limits.warp_size
    return (
        SETTINGS.shortest_shared <= N
        # A program holds shorter rows, and waits for no other, if there are many.
        and (SETTINGS.most_columns < N or SETTINGS.shared_waves * limits.sm_count >= M)
        and config["num_stages"] == 1
        and 1 < chunks(N, block_n) <= most_parts(config["num_warps"], limits)
        and threads * SHARED_REGISTERS <= limits.registers_per_sm
        and threads * 8 <= block_n * itemsize(problem.dtype)
        and block_n // threads <= most_values(config["num_warps"], limits)
    )


def most_parts(num_warps: int, limits: Limits) -> int:
    """Return the number of programs that may share a row: all run at once, even beside those of other streams."""
    at_once = limits.registers_per_sm // (num_warps * limits.warp_size * SHARED_REGISTERS)
    return limits.sm_count * at_once // WAITING_STREAMS
