"""Knobs and feasible configs of pooling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from tuner.kernels.shared.windows import Axis, Windows, windows
from tuner.kernels.shared.windows_launch import UNROLLED_BLOCKS, UNROLLED_ROWS, tiles, unrolled, vectors
from tuner.kernels.spec import Knob, Limits, Problem, Value, cdiv, next_power_of_2

SPLITS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Choices of the number of programs that share a window."""
KNOBS = (
    Knob("VARIANT", ("tiles", "reduced"), "a thread for each few outputs, or several threads for each output"),
    Knob("TILE_P", (1, 2, 4, 8), "rows of outputs of a thread; it reads rows that they share once"),
    Knob("TILE_Q", (1, 2, 4, 8), "columns of outputs of a thread"),
    Knob("BLOCK_Q", tuple(2**power for power in range(11)), "columns of outputs of a program"),
    Knob("BLOCK_N", tuple(2**power for power in range(11)), "channels of a program; of nchw its rows, or its windows"),
    Knob("BLOCK_K", tuple(2**power for power in range(14)), "elements of a window that are read at once, if reduced"),
    Knob("SPLIT", SPLITS, "programs that share a window, if reduced"),
    Knob("num_warps", (1, 2, 4, 8), "warps of a program"),
    Knob("num_stages", (1, 3), "reads of a long window in flight"),
)
PARTS: tuple[Mapping[str, tuple[Value, ...]], ...] = (
    {"VARIANT": ("tiles",), "BLOCK_K": (1,), "SPLIT": (1,), "num_stages": (1,)},
    {"VARIANT": ("reduced",), "TILE_P": (1,), "TILE_Q": (1,), "BLOCK_Q": (1,)},
)
"""Knobs of each variant; the others are 1."""


@dataclass(frozen=True)
class SpaceSettings:
    """Limits of the search space."""

    most_columns: int = 32
    """Most columns from the first to the last of a window that one thread reads."""
    least_shared: int = 16
    """Fewest elements of a window that several threads share."""
    most_alone: int = 64
    """Most elements of a contiguous window that one thread reads."""
    read_bytes: int = 512
    """Most bytes that a thread reads at once: 128 registers."""
    outputs: int = 64
    """Most outputs of a thread."""
    operations: int = 1024
    """Most reads and combinations that the compiler unrolls. More take it longer than 10 s."""
    most_repeats: int = 2
    """Most tiles of outputs of a thread."""
    blocks: tuple[int, int, int] = (4, 16, 256)
    """Fewest elements of a shared window that a program reads at once: of a short one, of long ones in nhwc and nchw.
    """
    least_split: int = 2048
    """Fewest elements of a window that several programs share; an eighth of it in nhwc."""
    values: tuple[int, int] = (4, 64)
    """Fewest and most elements of windows that a thread reads at once, if windows are shared."""
    sector_bytes: int = 64
    """Fewest bytes of neighbouring channels of a program."""
    shared_tiles_per_sm: int = 8
    """Most programs for each multiprocessor among which windows are split."""


SETTINGS = SpaceSettings()


known = cache(windows)
"""`windows`, remembered: a space has thousands of configs of one problem."""


def valid(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether a config is feasible."""
    found = known(problem)
    threads = config["num_warps"] * limits.warp_size
    if threads > limits.threads_per_block:
        return False
    if config["VARIANT"] == "tiles":
        others = config["BLOCK_K"] == config["SPLIT"] == config["num_stages"] == 1
        return others and has_tiles(found) and _valid_tiles(found, config, threads)
    others = config["TILE_P"] == config["TILE_Q"] == config["BLOCK_Q"] == 1
    return others and has_reduced(found) and _valid_reduced(found, config, threads, limits)


def has_tiles(found: Windows) -> bool:
    """Return whether one thread may read whole windows."""
    return found.columns.reach <= SETTINGS.most_columns and not (
        found.is_contiguous and found.elements > (SETTINGS.most_alone if found.is_nhwc else SETTINGS.least_shared)
    )


def has_reduced(found: Windows) -> bool:
    """Return whether several threads may share a window."""
    least = SETTINGS.least_shared if found.is_contiguous else SETTINGS.most_alone
    return found.elements > least or found.columns.reach > SETTINGS.most_columns


def least_channels(found: Windows) -> int:
    """Return the fewest neighbouring channels of a program."""
    return min(next_power_of_2(found.channels), SETTINGS.sector_bytes // found.element_bytes)


def shares_rows(rows: Axis) -> bool:
    """Return whether neighbouring rows of outputs share rows of an image in a loop over them."""
    return rows.dilation == 1 and rows.stride < rows.window


def steps(found: Windows, block_k: int) -> int:
    """Return the number of blocks of a window, if several threads share it."""
    rows = 1 if found.is_contiguous else found.rows.window
    return rows * cdiv(found.row_length, block_k)


def _valid_tiles(found: Windows, config: Mapping[str, Any], threads: int) -> bool:
    rows, columns = found.rows, found.columns
    tile_p, tile_q, block_q, block_n = (int(config[name]) for name in ("TILE_P", "TILE_Q", "BLOCK_Q", "BLOCK_N"))
    is_unrolled = rows.reach <= UNROLLED_ROWS
    vector, _ = vectors(found, tile_q)
    groups = block_q // tile_q
    lanes = groups * (block_n // vector if found.is_nhwc else block_n)
    most_n = found.channels if found.is_nhwc else found.images * found.channels * cdiv(rows.count, tile_p)
    repeats = max(1, lanes // threads)
    # Rows and columns of the image that a thread reads at once.
    high = (tile_p - 1) * rows.stride + rows.reach if is_unrolled else 1
    wide = (tile_q - 1) * columns.stride + columns.reach
    if found.is_nhwc:
        channels = vector
    else:
        channels = 1
        wide = (cdiv(columns.padding, vector) + cdiv(wide - columns.padding, vector)) * vector
    least_n = least_channels(found) if found.is_nhwc else 1
    operations = high * (wide + tile_q * (columns.window - 1)) + tile_p * tile_q * (high - 1)
    return bool(
        # A tile larger than the output computes nothing more.
        tile_p <= next_power_of_2(rows.count)
        and tile_q <= next_power_of_2(columns.count)
        and tile_q <= block_q <= max(tile_q, next_power_of_2(columns.count))
        and least_n <= block_n <= next_power_of_2(most_n)
        # Short rows of a program are short transfers.
        and (found.is_nhwc or groups >= min(8, next_power_of_2(cdiv(columns.count, tile_q))))
        and (is_unrolled or tile_p == 1 or shares_rows(rows))
        # Threads without outputs are idle; a thread with many keeps others from starting.
        and (lanes >= threads or config["num_warps"] == 1)
        and repeats <= SETTINGS.most_repeats
        and tile_p * tile_q * channels * repeats <= SETTINGS.outputs
        and (
            tile_p * tile_q * repeats == 1
            or high * wide * channels * repeats * found.element_bytes <= SETTINGS.read_bytes
        )
        and operations <= SETTINGS.operations
    )


def _valid_reduced(found: Windows, config: Mapping[str, Any], threads: int, limits: Limits) -> bool:
    block_n, block_k, split, stages = (int(config[name]) for name in ("BLOCK_N", "BLOCK_K", "SPLIT", "num_stages"))
    length = found.row_length
    most_n = found.channels if found.is_nhwc else found.outputs
    least_n = least_channels(found) if found.is_nhwc else 1
    at_once = unrolled(found, config)
    values = block_n * block_k * max(1, at_once) // threads
    fewest, most = SETTINGS.values
    count = steps(found, block_k)
    least_k = max(SETTINGS.blocks[0], next_power_of_2(length) // UNROLLED_BLOCKS)
    least_k = min(least_k, SETTINGS.blocks[1] if found.is_nhwc else SETTINGS.blocks[2])
    programs = tiles(found, config) * split
    return bool(
        least_n <= block_n <= next_power_of_2(most_n)
        and min(next_power_of_2(length), least_k) <= block_k <= next_power_of_2(length)
        and (block_n * block_k >= threads or config["num_warps"] == 1)
        and (values >= fewest or config["num_warps"] == 1)
        and (values <= most or block_n * block_k <= threads)
        # Only windows of several blocks are split, if there are not enough of them for all multiprocessors.
        and split <= count
        and (
            split == 1
            or (
                found.elements * (8 if found.is_nhwc else 1) >= SETTINGS.least_split
                and programs <= SETTINGS.shared_tiles_per_sm * limits.sm_count
            )
        )
        # Only a loop can be pipelined.
        and (stages == 1 or (stages <= cdiv(count, split) and not at_once))
        and stages * block_n * block_k * found.element_bytes <= limits.shared_bytes
    )
