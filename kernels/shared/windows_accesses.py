"""Sectors and lines that one load or store of a warp reaches, in pooling by `tiles`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.kernels.shared.windows import Windows, power_of_2_in
from tuner.kernels.shared.windows_work import Work
from tuner.kernels.spec import cdiv

SECTOR, LINE = 32, 128
"""Bytes of a sector, the unit of transfers between L1 and L2, and of a line of L1."""
LANES = 32
"""Threads of a warp."""


def loaded(found: Windows, each: Work, config: Mapping[str, Any], unit: int) -> float:
    """Return the mean number of sectors or lines that a load of a warp reaches.

    Args:
        unit: bytes of a sector or a line.
    """
    apart, image = config["TILE_Q"] * found.columns.stride, (found.rows.size, found.columns.size)
    return _reached(found, config, (apart, each.load_bytes, each.loads // each.read_rows), image, unit)


def stored(found: Windows, each: Work, config: Mapping[str, Any], unit: int) -> float:
    """Return the mean number of sectors or lines that a store of a warp reaches.

    Args:
        unit: bytes of a sector or a line.
    """
    parts = config["TILE_Q"] * found.element_bytes // each.store_bytes
    image = found.rows.count, found.columns.count
    return _reached(found, config, (config["TILE_Q"], each.store_bytes, parts), image, unit)


def _reached(
    found: Windows, config: Mapping[str, Any], access: tuple[int, int, int], image: tuple[int, int], unit: int
) -> float:
    """Return the mean number of sectors or lines that an access of a warp reaches.

    Args:
        access: columns from a thread to the next, bytes of an access, and number of accesses of a thread in a row.
        image: rows and columns that are accessed.
    """
    apart, bytes_, times = access
    size, along = found.element_bytes, config["BLOCK_Q"] // config["TILE_Q"]
    if found.is_nhwc:
        pixel, run = found.channels * size, min(config["BLOCK_N"] * size, found.channels * size, LANES * bytes_)
        runs = min(along, max(1, LANES * bytes_ // (config["BLOCK_N"] * size)))
        each_run = touched(run, power_of_2_in(run, pixel), unit)
        return min(runs * each_run, touched((runs - 1) * apart * pixel + run, power_of_2_in(pixel), unit))
    lanes, row = min(along, LANES), image[1] * size
    high, groups = min(LANES // lanes, config["BLOCK_N"]), cdiv(found.rows.count, config["TILE_P"])
    run = (min(lanes, cdiv(found.columns.count, config["TILE_Q"])) - 1) * apart * size + bytes_
    # Of the accesses in a row one begins where the row or the program's part of it does.
    of_row = power_of_2_in(row, lanes * apart * size)
    share = max(bytes_ / of_row, 1 / times) if of_row > bytes_ else 1.0
    in_row = share * touched(run, of_row, unit) + (1 - share) * touched(run, bytes_, unit)
    of_lanes = ((run - bytes_) / (apart * size) + 1) * touched(bytes_, bytes_, unit)
    pitch = image[0] * row / groups  # neighbouring rows of a small image share lines
    return min(high * min(of_lanes, in_row), touched((high - 1) * pitch + run, bytes_, unit))


def far_of_channels(found: Windows, block_n: int) -> float:
    """Return the bytes of the lines that a program of nhwc reaches, relative to those that it reads of them.

    Parts of lines are reached if a program has few of the channels, or if pixels begin anywhere.

    Args:
        block_n: channels of a program.
    """
    if block_n >= found.channels:
        return 1.0
    run = block_n * found.element_bytes
    return touched(run, power_of_2_in(run, found.channels * found.element_bytes), LINE) * LINE / run


def touched(run: float, aligned: int, unit: int) -> float:
    """Return the mean number of units that a run of bytes reaches, if it begins at a multiple of some bytes."""
    return max(1.0, (run + unit - min(unit, aligned)) / unit)
