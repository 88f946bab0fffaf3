"""Windows of 2-D pooling: their number, their places, and the numbers that their kernels need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from math import gcd
from typing import Any

from tuner.errors import UsageError
from tuner.kernels.spec import Operand, Problem, itemsize


@dataclass(frozen=True)
class Axis:
    """Windows along one axis of an image, in elements of that axis."""

    size: int
    window: int
    stride: int
    padding: int
    dilation: int
    ceil: bool

    @property
    def reach(self) -> int:
        """Elements from the first to the last of a window."""
        return self.dilation * (self.window - 1) + 1

    @property
    def count(self) -> int:
        """Number of windows, as torch counts them: 0 if not one fits.

        With `ceil`, a last window may reach past the padded image, if it starts inside the image or the padding before
        it.
        """
        free = self.size + 2 * self.padding - self.reach
        if free < 0 and not (self.ceil and free > -self.stride):
            return 0
        count = (free + (self.stride - 1 if self.ceil else 0)) // self.stride + 1
        if self.ceil and (count - 1) * self.stride >= self.size + self.padding:
            count -= 1
        return max(0, count)

    @property
    def is_single(self) -> bool:
        """True if there is one window, of all elements, whatever the stride."""
        return self.size + 2 * self.padding == self.reach

    @property
    def end(self) -> int:
        """Elements from the start of the image to the end of the last window, without dilation."""
        return (self.count - 1) * self.stride - self.padding + self.window

    @property
    def is_inside(self) -> bool:
        """True if no window reaches out of the image."""
        return self.padding == 0 and (self.count - 1) * self.stride + self.reach <= self.size

    def is_whole(self, count_padding: bool) -> bool:
        """Return whether each window's divisor counts all of its elements."""
        return self.end <= self.size + self.padding if count_padding else self.padding == 0 and self.end <= self.size


@dataclass(frozen=True)
class Windows:
    """The windows of a problem."""

    images: int
    channels: int
    rows: Axis
    columns: Axis
    is_nhwc: bool
    element_bytes: int

    def check(self, op: str) -> None:
        """Raise UsageError if no window fits the image, or the padding is more than half a window."""
        check_axis(op, "rows", self.rows)
        check_axis(op, "columns", self.columns)

    @property
    def vector(self) -> int:
        """Number of elements of 16 bytes."""
        return 16 // self.element_bytes

    @property
    def outputs(self) -> int:
        """Number of windows in all images and channels."""
        return self.images * self.channels * self.rows.count * self.columns.count

    @property
    def is_contiguous(self) -> bool:
        """True if the elements of each window are neighbours: whole rows of an image, none outside of it."""
        columns = self.columns
        return columns.window == columns.size and columns.dilation == self.rows.dilation == 1 and self.is_inside

    @property
    def is_inside(self) -> bool:
        return self.rows.is_inside and self.columns.is_inside

    @property
    def is_grouped(self) -> bool:
        """True if contiguous windows of nchw begin within 16 bytes, so that whole groups of 16 bytes are read."""
        return self.is_contiguous and not self.is_nhwc and power_of_2_in(self.vector, self.elements) < self.vector

    @property
    def row_length(self) -> int:
        """Elements of a window that are read as one row: all of a contiguous one, from the start of its first group."""
        if not self.is_contiguous:
            return self.columns.window
        return self.elements + (self.vector - 1 if self.is_grouped else 0)

    @property
    def elements(self) -> int:
        """Number of elements of a window."""
        return self.rows.window * self.columns.window


def check_axis(op: str, name: str, axis: Axis) -> None:
    """Raise UsageError if a number is out of range, the padding is more than half a window, or no window fits.

    Args:
        name: rows or columns.
    """
    for number in ("window", "stride", "dilation"):
        if getattr(axis, number) < 1:
            raise UsageError(f"{op}: the {number} of {name} is 1 or more, not {getattr(axis, number)}; make it larger")
    if not 0 <= 2 * axis.padding <= axis.window:
        raise UsageError(
            f"{op}: the padding of {name} is 0 to half a window of {axis.window}, not {axis.padding}; correct it"
        )
    if axis.size and not axis.count:
        raise UsageError(
            f"{op}: a window spans at most the {axis.size + 2 * axis.padding} {name} of the padded image, "
            f"not {axis.reach}; make it smaller"
        )


@cache
def windows(problem: Problem) -> Windows:
    """Return the windows of a problem."""
    values: Mapping[str, Any] = problem.values

    def axis(size: str, window: str, letter: str) -> Axis:
        stride, padding = values[f"stride_{letter}"], values[f"padding_{letter}"]
        return Axis(values[size], values[window], stride, padding, values.get(f"dilation_{letter}", 1), values["ceil"])

    return Windows(
        values["B"], values["C"], axis("H", "R", "h"), axis("W", "S", "w"),
        values["layout"] == "nhwc", itemsize(problem.dtype),
    )  # fmt: skip


def images(problem: Problem) -> Mapping[str, Operand]:
    """Return x (B, C, H, W) and out (B, C, P, Q), channels last in memory if the layout says so.

    Raises:
        UsageError: no window fits the image, or the padding is more than half a window.
    """
    found = windows(problem)
    found.check(problem.op)

    def image(height: int, width: int, role: Any) -> Operand:
        shape = (found.images, found.channels, height, width)
        strides = (height * width * found.channels, 1, width * found.channels, found.channels)
        return Operand(shape, problem.dtype, role, strides if found.is_nhwc else None)

    return {
        "x": image(found.rows.size, found.columns.size, "in"),
        "out": image(found.rows.count, found.columns.count, "out"),
    }


def power_of_2_in(*numbers: int) -> int:
    """Return the largest power of two that divides each of the numbers; 0 is divided by all."""
    common = gcd(*numbers)
    return common & -common
