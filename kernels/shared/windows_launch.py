"""Launches of pooling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.kernels.shared.windows import Windows, counts_all, power_of_2_in, windows
from tuner.kernels.shared.windows_nchw import windows_nchw
from tuner.kernels.shared.windows_nhwc import windows_nhwc
from tuner.kernels.shared.windows_reduced import reduced_nchw, reduced_nhwc
from tuner.kernels.spec import Config, Launch, Operand, Problem, cdiv

UNROLLED_ROWS = 8
"""Most rows from the first to the last of a window that are not looped over."""
UNROLLED_BLOCKS = 16
"""Most blocks of a contiguous window that are read at once."""
UNROLLED_VALUES = 64
"""Most elements of contiguous windows that a thread reads at once."""
NARROW = 2**31 - 2**20
"""Largest index that, rounded up to whole blocks, fits 32 bits."""


def pooled(
    problem: Problem, config: Config, tensors: Mapping[str, Any], *, maximum: bool, divisor: float = 0.0
) -> tuple[Launch, ...]:
    """Return the launch that pools x to out; () without outputs.

    Args:
        divisor: divides each sum; 0 is the number of elements of its window.
    """
    found = windows(problem)
    if found.outputs == 0:
        return ()
    count_padding = maximum or bool(problem["count_include_pad"])
    is_whole = counts_all(found.rows, count_padding) and counts_all(found.columns, count_padding)
    shared = {
        "STRIDE_H": found.rows.stride,
        "STRIDE_W": found.columns.stride,
        "PADDING_H": found.rows.padding,
        "PADDING_W": found.columns.padding,
        "DILATION_H": found.rows.dilation,
        "DILATION_W": found.columns.dilation,
        "MAX": maximum,
        "COUNTED": not (maximum or divisor or is_whole),
        "COUNT_PADDING": count_padding,
        "num_warps": config["num_warps"],
        "num_stages": config["num_stages"],
    }
    divisor = divisor or float(found.elements)
    make = _tiles if config["VARIANT"] == "tiles" else _reduced
    return (make(found, config, tensors, shared, divisor),)


def workspace(problem: Problem, config: Config) -> Mapping[str, Operand]:
    """Return, for windows that several programs share: the parts' values and the programs that have written theirs."""
    found, split = windows(problem), config["SPLIT"]
    if split == 1:
        return {}
    return {"found": Operand((split, found.outputs), "fp32"), "arrived": Operand((tiles(found, config),), "int32")}


def tiles(found: Windows, config: Mapping[str, Any]) -> int:
    """Return the number of tiles of outputs; each is one program, or SPLIT of them."""
    block_n, columns = config["BLOCK_N"], found.columns.count
    planes = found.images * found.channels
    if config["VARIANT"] == "reduced":
        blocks = cdiv(found.channels, block_n)
        return found.outputs // found.channels * blocks if found.is_nhwc else cdiv(found.outputs, block_n)
    groups = cdiv(found.rows.count, config["TILE_P"])
    blocks = cdiv(columns, config["BLOCK_Q"])
    if found.is_nhwc:
        return found.images * groups * blocks * cdiv(found.channels, block_n)
    return cdiv(planes * groups, block_n) * blocks


def unrolled(found: Windows, config: Mapping[str, Any]) -> int:
    """Return the number of blocks of contiguous windows that are read at once; 0 if they are looped over."""
    blocks = cdiv(found.row_length, config["BLOCK_K"])
    values = blocks * config["BLOCK_K"] * config["BLOCK_N"] // (config["num_warps"] * 32)
    is_short = blocks <= UNROLLED_BLOCKS and (values <= UNROLLED_VALUES or blocks == 1)
    return blocks if found.is_contiguous and config["SPLIT"] == 1 and is_short else 0


def vectors(found: Windows, tile_q: int) -> tuple[int, int]:
    """Return the elements that a thread loads and stores at once, if it computes TILE_Q columns of outputs."""
    if found.is_nhwc:
        vector = power_of_2_in(found.vector, found.channels)
        return vector, vector
    columns = found.columns
    return (
        power_of_2_in(found.vector, columns.size, tile_q * columns.stride),
        power_of_2_in(found.vector, columns.count, tile_q),
    )


def _tiles(
    found: Windows, config: Config, tensors: Mapping[str, Any], shared: Mapping[str, Any], divisor: float
) -> Launch:
    rows, columns = found.rows, found.columns
    vector, vector_out = vectors(found, config["TILE_Q"])
    count = tiles(found, config)
    compiled = {
        "R": rows.window,
        "S": columns.window,
        **shared,
        "VECTOR": vector,
        "WIDE": count * config["BLOCK_N"] > NARROW,
        "UNROLLED": rows.reach <= UNROLLED_ROWS,
        **{name: config[name] for name in ("TILE_P", "TILE_Q", "BLOCK_N", "BLOCK_Q")},
    }
    operands, planes = (tensors["x"], tensors["out"]), found.images * found.channels
    if found.is_nhwc:
        sizes = (rows.size, columns.size, found.channels // vector, rows.count, columns.count)
        return Launch(windows_nhwc, (count,), (*operands, *sizes, divisor), compiled)
    sizes = (planes, rows.size, columns.size // vector, rows.count, columns.count // vector_out)
    return Launch(windows_nchw, (count,), (*operands, *sizes, divisor), compiled | {"VECTOR_OUT": vector_out})


def _reduced(
    found: Windows, config: Config, tensors: Mapping[str, Any], shared: Mapping[str, Any], divisor: float
) -> Launch:
    rows, columns, split = found.rows, found.columns, config["SPLIT"]
    in_one_row = found.is_contiguous
    R, S = (1, found.elements) if in_one_row else (rows.window, columns.window)
    work = tuple(tensors[name] if split > 1 else None for name in ("found", "arrived"))
    operands = (tensors["x"], tensors["out"], *work, found.outputs, rows.size, columns.size)
    count = tiles(found, config)
    compiled = {
        **shared,
        "INSIDE": found.is_inside,
        "WIDE": max(count * config["BLOCK_N"], S) > NARROW,
        "BLOCK_N": config["BLOCK_N"],
        "BLOCK_K": config["BLOCK_K"],
        "SPLIT": split,
        "STAGES": config["num_stages"],
        "UNROLLED": unrolled(found, config),
    }
    if found.is_nhwc:
        vector = power_of_2_in(found.vector, found.channels)
        sizes = (found.channels // vector, rows.count, columns.count, R, S)
        return Launch(reduced_nhwc, (count * split,), (*operands, *sizes, divisor), compiled | {"VECTOR": vector})
    pitches = (
        rows.size * columns.size,
        rows.stride * columns.size if rows.count > 1 else 0,
        columns.stride if columns.count > 1 else 0,
        rows.dilation * columns.size if R > 1 else 0,
        rows.padding * columns.size + columns.padding,
    )
    vector = power_of_2_in(found.vector, S, *pitches) if columns.dilation == 1 and not found.is_grouped else 1
    in_units = (columns.count, rows.count * columns.count, R, S // vector)
    units = (pitch // vector for pitch in pitches)
    is_aligned = tensors["x"].data_ptr() % 16 == 0
    compiled |= {"VECTOR": vector, "GROUP": found.vector if found.is_grouped and is_aligned else 1}
    return Launch(reduced_nchw, (count * split,), (*operands, *in_units, divisor, *units), compiled)
