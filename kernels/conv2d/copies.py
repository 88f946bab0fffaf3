"""Padded copies of x and weight for unaligned channels: their shapes, and the convolution that reads them.

Pixels of 3 channels are 6 bytes. The copy engine (TMA) cannot read them, and threads read them in pieces of 2 or 4
bytes. A copy has more channels, zero, so that pixels or windows are aligned, and the padding of x. Windows of the copy
may overlap in a descriptor: it has a row of windows for each row of the image, each with the elements of all pixels of
the window in that row, one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from math import gcd
from typing import Any

from tuner.kernels.conv2d.layer import MOST_ROWS, layer
from tuner.kernels.conv2d.patches import Lying, View, view
from tuner.kernels.shared.tiling import ALIGNED_BYTES
from tuner.kernels.shared.windows import Axis
from tuner.kernels.spec import Problem, cdiv, itemsize, next_power_of_2

MOST_CHANNELS = 512
"""Most channels of a copy: a program copies all of some pixels at once."""


@dataclass(frozen=True)
class Copy:
    """The copies of a config. Made by `copy_of`."""

    channels: int
    """Channels of a pixel: those of x, and zeros."""
    rows: int
    """Rows of an image with its padding, a multiple of the stride."""
    columns: int
    """Columns of an image with its padding, a multiple of the stride."""
    run: int
    """Elements of a window in a row."""
    pitch: int
    """Elements of a filter in a row of its window: the run, for descriptors with zeros up to a whole step."""
    problem: Problem
    """The convolution of the copies: of images without padding, or of rows of windows as channels."""
    seen: View
    """The copy of x as the copy engine reads it."""


def may_copy(problem: Problem) -> bool:
    """Return whether pixels are not aligned to 16 bytes, and those of a window's row are neighbours."""
    found = layer(problem)
    return found.has_rows and found.channels * itemsize(problem.dtype) % ALIGNED_BYTES > 0


def copy_of(problem: Problem, config: Mapping[str, Any]) -> Copy:
    """Return the copies of a config with COPY."""
    return _pixels(problem) if config["VARIANT"] == "tiles" else _windows(problem, config["BLOCK_K"])


def convolved(problem: Problem, config: Mapping[str, Any]) -> Problem:
    """Return the problem that a variant computes: that of the copies with COPY."""
    return copy_of(problem, config).problem if config["COPY"] else problem


def copies_can(problem: Problem, config: Mapping[str, Any]) -> bool:
    """Return whether the copies of a config are what its variant can read."""
    copy = copy_of(problem, config)
    inner = layer(copy.problem)
    return (
        inner.depth <= MOST_ROWS
        # A program copies all channels of its pixels, and counts rows of all images in 32 bits.
        and copy.channels <= MOST_CHANNELS
        and inner.images * copy.rows <= MOST_ROWS
        and copy.pitch <= max(32, 2 * copy.run - 1)
        # Windows of several columns and one row are no matrix: rows of images have gaps.
        and inner.is_matrix == layer(problem).is_matrix
    )


def copied_bytes(problem: Problem, config: Mapping[str, Any]) -> int:
    """Return the bytes that the copy of x reads and writes."""
    found, copy = layer(problem), copy_of(problem, config)
    read = found.rows.size * found.columns.size * found.channels
    return found.images * (read + copy.rows * copy.columns * copy.channels) * itemsize(problem.dtype)


@cache
def _pixels(problem: Problem) -> Copy:
    """Return the copies for threads: pixels of 4, 8 or a multiple of 16 bytes."""
    found, size = layer(problem), itemsize(problem.dtype)
    each = ALIGNED_BYTES // size
    few = next_power_of_2(max(found.channels, 4 // size))
    channels = few if few <= each else cdiv(found.channels, each) * each
    rows, columns = _padded(found.rows), _padded(found.columns)
    changed = {"C": channels, "H": rows, "W": columns, **_NO_PADDING}
    inner = _changed(problem, changed, f"{problem.text} padded to {channels} channels")
    run = found.columns.window * channels
    return Copy(channels, rows, columns, run, run, inner, view(inner))


@cache
def _windows(problem: Problem, block_k: int) -> Copy:
    """Return the copies for descriptors: windows are multiples of 16 bytes apart."""
    found, size = layer(problem), itemsize(problem.dtype)
    each = ALIGNED_BYTES // gcd(ALIGNED_BYTES, found.columns.stride * size)
    channels = cdiv(found.channels, each) * each
    rows, columns = _padded(found.rows), _padded(found.columns)
    run = found.columns.window * channels
    pitch = cdiv(run, block_k) * block_k
    changed = {"C": pitch, "H": rows, "W": found.columns.count, "S": 1, "stride_w": 1, **_NO_PADDING}
    inner = _changed(problem, changed, f"{problem.text} in rows of {channels} channels and {pitch} elements")
    lying = Lying(rows * columns * channels, columns * channels, found.columns.stride * channels, run)
    return Copy(channels, rows, columns, run, pitch, inner, view(inner, lying))


_NO_PADDING: Mapping[str, int] = {"padding_h": 0, "padding_w": 0}


def _padded(axis: Axis) -> int:
    """Return the elements from the first to the last of all windows, as a multiple of the stride."""
    return cdiv((axis.count - 1) * axis.stride + axis.reach, axis.stride) * axis.stride


def _changed(problem: Problem, changed: Mapping[str, int], text: str) -> Problem:
    dims = tuple((name, changed.get(name, size)) for name, size in problem.dims)
    attributes = tuple((name, changed.get(name, value)) for name, value in problem.attributes)
    return replace(problem, dims=dims, attributes=attributes, text=text)
