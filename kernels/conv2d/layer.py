"""A convolution as a matrix product: rows are output pixels, columns are filters, and K is the elements of a window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from tuner.errors import UsageError
from tuner.kernels.shared.tiling import ALIGNED_BYTES
from tuner.kernels.shared.windows import Axis, axis, is_inside, power_of_2_in
from tuner.kernels.spec import Problem, cdiv, itemsize

MOST_ROWS = 2**31 - 4096
"""Most output pixels, and most elements of a window: rounded up to whole blocks, they fit 32 bits."""


@dataclass(frozen=True)
class Layer:
    """The sizes of a problem. Made by `layer`."""

    images: int
    channels: int
    filters: int
    rows: Axis
    columns: Axis

    @property
    def taps(self) -> int:
        """Number of pixels of a window."""
        return self.rows.window * self.columns.window

    @property
    def pixels(self) -> int:
        """Number of output pixels in all images."""
        return self.images * self.rows.count * self.columns.count

    @property
    def depth(self) -> int:
        """Number of elements of a window, in all channels."""
        return self.taps * self.channels

    @property
    def has_rows(self) -> bool:
        """True if the pixels of a row of a window are neighbours in memory."""
        return self.columns.dilation == 1 or self.columns.window == 1

    @property
    def is_inside(self) -> bool:
        """True if no window reaches out of the image."""
        return is_inside(self.rows) and is_inside(self.columns)

    @property
    def is_matrix(self) -> bool:
        """True if output pixels are the pixels of x in order, so that the convolution is a product of matrices."""
        return self.taps == 1 and self.rows.stride == self.columns.stride == 1 and self.is_inside


@cache
def layer(problem: Problem) -> Layer:
    """Return the sizes of a problem."""
    values = problem.values

    def along(size: str, window: str, letter: str) -> Axis:
        stride, padding, dilation = (values[f"{name}_{letter}"] for name in ("stride", "padding", "dilation"))
        return axis(values[size], values[window], stride, padding, dilation, ceil=False)

    return Layer(values["B"], values["C"], values["O"], along("H", "R", "h"), along("W", "S", "w"))


@cache
def product(problem: Problem) -> Problem:
    """Return the problem with the sizes M, N, K of its matrix product, for the rules over tiles."""
    found = layer(problem)
    sizes = (("M", found.pixels), ("N", found.filters), ("K", found.depth))
    return Problem(problem.op, sizes, problem.dtype, problem.attributes, f"{problem.text} as a product")


def steps(problem: Problem, block_k: int) -> int:
    """Return the number of steps along K of a tile that threads read."""
    found = layer(problem)
    if has_runs(problem, block_k):
        return found.rows.window * cdiv(run_of(problem).length, block_k)
    return taps_steps(problem, block_k)


def taps_steps(problem: Problem, block_k: int) -> int:
    """Return the number of steps along K if each has channels of one pixel of a window."""
    found = layer(problem)
    return found.taps * cdiv(found.channels, block_k)


@dataclass(frozen=True)
class Run:
    """Elements of x that are read as one. Made by `run_of`."""

    unit: int
    """Number of elements that are read at once, up to 16 bytes: all runs and rows of images are multiples of it."""
    before: int
    """Number of elements before the first of a window, so that all begin with a unit."""
    length: int
    """Number of elements from there to the last one in a row of a window, whose pixels are neighbours in memory."""


@cache
def run_of(problem: Problem) -> Run:
    """Return the runs of elements in rows of windows."""
    columns, C = layer(problem).columns, layer(problem).channels
    unit = power_of_2_in(16 // itemsize(problem.dtype), columns.stride * C, columns.size * C)
    while (columns.window * C + -columns.padding * C % unit) % unit:
        unit //= 2
    before = -columns.padding * C % unit
    return Run(unit, before, columns.window * C + before)


def has_runs(problem: Problem, block_k: int) -> bool:
    """Return whether steps along rows of windows are fewer than those of one pixel each."""
    found = layer(problem)
    fewer = cdiv(run_of(problem).length, block_k) < found.columns.window * cdiv(found.channels, block_k)
    return fewer and found.columns.dilation == 1


def filters_at_once(problem: Problem) -> int:
    """Return the number of filters of a pixel that are stored at once: a power of two of at most 16 bytes.

    Triton specializes a number only on whether it is a multiple of 16.
    """
    return power_of_2_in(ALIGNED_BYTES // itemsize(problem.dtype), layer(problem).filters)


def direct_steps(problem: Problem, block_k: int) -> int:
    """Return the number of steps along K if they go on from row to row of a window."""
    return cdiv(layer(problem).rows.window * run_of(problem).length, block_k)


def direct_bytes(problem: Problem, config: Mapping[str, Any]) -> tuple[int, int]:
    """Return the elements along K of all steps of `direct`, and the bytes of its filters and of its stored tile."""
    depth = config["BLOCK_K"] * direct_steps(problem, config["BLOCK_K"])
    return depth, (depth + config["BLOCK_M"]) * config["BLOCK_N"] * itemsize(problem.dtype)


def check_axis(name: str, axis: Axis) -> None:
    """Raise UsageError if a number is out of range or no window fits.

    Args:
        name: rows or columns.
    """
    for number in ("window", "stride", "dilation"):
        if getattr(axis, number) < 1:
            raise UsageError(
                f"conv2d: the {number} of {name} is 1 or more, not {getattr(axis, number)}; make it larger"
            )
    if axis.padding < 0:
        raise UsageError(f"conv2d: the padding of {name} is 0 or more, not {axis.padding}; make it larger")
    if axis.size and not axis.count:
        raise UsageError(
            f"conv2d: a window spans at most the {axis.size + 2 * axis.padding} {name} of the padded image, "
            f"not {axis.reach}; make it smaller"
        )


def check(problem: Problem) -> None:
    """Raise UsageError if windows do not fit, or there are more output pixels or elements than 32 bits count."""
    found = layer(problem)
    check_axis("rows", found.rows)
    check_axis("columns", found.columns)
    for name, size in (("output pixels", found.pixels), ("elements of a window", found.depth)):
        if size > MOST_ROWS:
            raise UsageError(
                f"conv2d: {name} are at most {MOST_ROWS}, since the kernel counts in 32 bits, not {size}; "
                "split the problem"
            )
