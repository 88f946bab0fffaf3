"""The launch that copies x and weight, with padding and further channels of zeros."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton
import triton.language as tl

from tuner.kernels.conv2d.copies import Copy, copy_of
from tuner.kernels.conv2d.layer import layer
from tuner.kernels.shared.products import multiple
from tuner.kernels.shared.tiling import ALIGNED_BYTES, stated_multiple
from tuner.kernels.spec import Launch, Operand, Problem, cdiv, itemsize, next_power_of_2

TILE = 4096
"""Elements that a program of four warps copies."""


@triton.jit
def copy_pixels(
    x, x_copy, tile, rows, H, W, C, copy_rows, copy_columns, PADDING_H: tl.constexpr, PADDING_W: tl.constexpr,
    CHANNELS: tl.constexpr, COLUMNS: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    """Copy a tile of PIXELS // COLUMNS rows by COLUMNS pixels. A thread writes neighbouring channels of a pixel."""
    across = tl.cdiv(copy_columns, COLUMNS)
    pixel = tl.arange(0, PIXELS)
    row = tile // across * (PIXELS // COLUMNS) + pixel // COLUMNS
    column = tile % across * COLUMNS + pixel % COLUMNS
    image = row // copy_rows
    h = row - image * copy_rows - PADDING_H
    w = column - PADDING_W
    inside = (h >= 0) & (h < H) & (w >= 0) & (w < W) & (row < rows)
    read = ((image.to(tl.int64) * H + h) * W + w) * C
    written = (row.to(tl.int64) * copy_columns + column) * CHANNELS
    stored = (row < rows) & (column < copy_columns)
    c = tl.arange(0, triton.next_power_of_2(CHANNELS))[None, :]
    values = tl.load(x + read[:, None] + c, mask=inside[:, None] & (c < C), other=0.0)
    tl.store(x_copy + written[:, None] + c, values, mask=stored[:, None] & (c < CHANNELS))


@triton.jit
def copy_filters(
    weight, weight_copy, tile, rows, length, C,
    CHANNELS: tl.constexpr, PITCH: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Copy TILE elements of rows of filters: `length` pixels each, with zeros up to PITCH elements."""
    element = tile.to(tl.int64) * TILE + tl.arange(0, TILE)
    row, place = element // PITCH, element % PITCH
    pixel, c = place // CHANNELS, place % CHANNELS
    inside = (row < rows) & (pixel < length) & (c < C)
    values = tl.load(weight + (row * length + pixel) * C + c, mask=inside, other=0.0)
    tl.store(weight_copy + element, values, mask=row < rows)


@triton.jit
def conv2d_copy(
    x, x_copy, weight, weight_copy, tiles_of_x, rows, H, W, C, copy_rows, copy_columns, filter_rows, length,
    PADDING_H: tl.constexpr, PADDING_W: tl.constexpr, CHANNELS: tl.constexpr, PITCH: tl.constexpr,
    COLUMNS: tl.constexpr, PIXELS: tl.constexpr, TILE: tl.constexpr, VEC: tl.constexpr,
):  # fmt: skip
    """Copy a tile of x, or of weight: both in one launch. C is a multiple of VEC, and as many are loaded at once."""
    C = multiple(C, VEC)
    tile = tl.program_id(0)
    if tile < tiles_of_x:
        copy_pixels(
            x, x_copy, tile, rows, H, W, C, copy_rows, copy_columns, PADDING_H, PADDING_W, CHANNELS, COLUMNS, PIXELS
        )
    else:
        copy_filters(weight, weight_copy, tile - tiles_of_x, filter_rows, length, C, CHANNELS, PITCH, TILE)


def copy_workspace(problem: Problem, config: Mapping[str, Any]) -> Mapping[str, Operand]:
    """Return the copies of x and weight, if the config has them."""
    if not config["COPY"]:
        return {}
    found, copy = layer(problem), copy_of(problem, config)
    return {
        "x_copy": Operand((found.images, copy.rows, copy.columns, copy.channels), problem.dtype),
        "weight_copy": Operand((found.filters, found.rows.window, copy.pitch), problem.dtype),
    }


def padded(problem: Problem, copy: Copy, tensors: Mapping[str, Any]) -> Launch:
    """Return the launch that copies x and weight to the workspace."""
    found = layer(problem)
    rows, filter_rows = found.images * copy.rows, found.filters * found.rows.window
    pixels = max(16, TILE // next_power_of_2(copy.channels))
    columns = _width(copy.columns, rows, pixels)
    tiles = cdiv(copy.columns, columns) * cdiv(rows, pixels // columns)
    pointers = [tensors[name] for name in ("x", "x_copy", "weight", "weight_copy")]
    sizes = (found.rows.size, found.columns.size, found.channels, copy.rows, copy.columns)
    return Launch(
        conv2d_copy,
        grid=(tiles + cdiv(filter_rows * copy.pitch, TILE),),
        args=(*pointers, tiles, rows, *sizes, filter_rows, found.columns.window),
        kwargs={
            "PADDING_H": found.rows.padding,
            "PADDING_W": found.columns.padding,
            "CHANNELS": copy.channels,
            "PITCH": copy.pitch,
            "COLUMNS": columns,
            "PIXELS": pixels,
            "TILE": TILE,
            "VEC": stated_multiple(ALIGNED_BYTES // itemsize(problem.dtype), found.channels),
            "num_warps": 4,
        },
    )


def _width(columns: int, rows: int, pixels: int) -> int:
    """Return the columns of a tile of pixels: with fewest tiles, and then the widest."""
    widths = [2**power for power in range(pixels.bit_length())]
    return min(widths, key=lambda width: (cdiv(columns, width) * cdiv(rows, pixels // width), -width))
