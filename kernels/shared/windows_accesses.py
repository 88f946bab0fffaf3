"""Sectors and lines that one load or store of a warp reaches, in pooling by `tiles`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.kernels.shared.windows import Windows, power_of_2_in
from tuner.kernels.shared.windows_work import Work
from tuner.kernels.spec import cdiv

SECTOR, LINE = 32, 128
"""Bytes of a sector, the unit of transfers between L1 and L2, and of a line of L1."""


def reached(found: Windows, each: Work, config: Mapping[str, Any], along: int, unit: int) -> tuple[float, float]:
    """Return the sectors or lines that a load and a store of a warp reach.

    Args:
        unit: bytes of a sector or a line.
    """
    rows, columns, size = found.rows, found.columns, found.element_bytes
    if found.is_nhwc:
        run, pixel = min(config["BLOCK_N"], found.channels) * size, found.channels * size
        run = min(run, 32 * each.load_bytes)
        runs = min(along, max(1, 32 * each.load_bytes // (config["BLOCK_N"] * size)))

        def of_pixels(apart: int) -> float:
            """Return what accesses to channels of some pixels apart reach."""
            each_run = touched(run, power_of_2_in(run, pixel), unit)
            return min(runs * each_run, touched((runs - 1) * apart * pixel + run, power_of_2_in(pixel), unit))

        return of_pixels(config["TILE_Q"] * columns.stride), of_pixels(config["TILE_Q"])
    lanes = min(along, 32)
    high, groups = min(32 // lanes, config["BLOCK_N"]), cdiv(rows.count, config["TILE_P"])
    active = min(lanes, cdiv(columns.count, config["TILE_Q"]))

    def of_rows(apart: int, bytes_: int, times: float, row: int, pitch: float) -> float:
        """Return what a number of accesses of a size to addresses apart reach, in rows of a length at a pitch.

        Of these accesses one begins where the row or the program's part of it does.
        """
        run, of_row = (active - 1) * apart + bytes_, power_of_2_in(row, lanes * apart)
        share = max(bytes_ / of_row, 1 / times) if of_row > bytes_ else 1.0
        aligned = share * touched(run, of_row, unit) + (1 - share) * touched(run, bytes_, unit)
        in_row = min(active * touched(bytes_, bytes_, unit), aligned)
        return min(high * in_row, touched((high - 1) * pitch + run, bytes_, unit))

    row, out_row = columns.size * size, columns.count * size
    apart, parts = config["TILE_Q"] * size, config["TILE_Q"] * size / each.store_bytes
    loads = each.loads / each.read_rows
    return (
        of_rows(apart * columns.stride, each.load_bytes, loads, row, rows.size * row / groups),
        of_rows(apart, each.store_bytes, parts, out_row, rows.count * out_row / groups),
    )


def touched(run: float, aligned: int, unit: int) -> float:
    """Return the mean number of units that a run of bytes reaches, if it begins at a multiple of some bytes."""
    return max(1.0, (run + unit - min(unit, aligned)) / unit)
