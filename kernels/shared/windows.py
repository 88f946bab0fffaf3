"""Windows of 2-D pooling: their number, their places, and the numbers that their kernels need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd
from typing import Any

from tuner.errors import UsageError
from tuner.kernels.spec import Operand, Problem, itemsize


@dataclass(frozen=True)
class Axis:
    """Windows along one axis of an image, in elements of that axis. Made by `axis`."""

    size: int
    window: int
    stride: int
    padding: int
    dilation: int
    reach: int
    """Elements from the first to the last of a window."""
    count: int
    """Number of windows; 0 if not one fits."""


@dataclass(frozen=True)
class Windows:
    """The windows of a problem. Made by `windows`."""

    images: int
    channels: int
    rows: Axis
    columns: Axis
    is_nhwc: bool
    element_bytes: int
    vector: int
    """Number of elements of 16 bytes."""
    outputs: int
    """Number of windows in all images and channels."""
    elements: int
    """Elements of a window."""
    is_inside: bool
    """True if no window reaches out of the image."""
    is_contiguous: bool
    """True if the elements of each window are neighbours: whole rows of an image, none outside of it."""
    is_grouped: bool
    """True if contiguous windows of nchw begin within 16 bytes, so that whole groups of 16 bytes are read."""
    row_length: int
    """Elements of a window that are read as one row: all of a contiguous one, from the start of its first group."""


def axis(size: int, window: int, stride: int, padding: int, dilation: int, ceil: bool) -> Axis:
    """Return the windows along an axis, counted as torch counts them.

    With `ceil`, a last window may reach past the padded image, if it starts inside the image or the padding before it.
    """
    reach = dilation * (window - 1) + 1
    free = size + 2 * padding - reach
    count = max(0, (free + (stride - 1 if ceil else 0)) // max(1, stride) + 1)  # a stride of 0 is refused later
    if ceil and (count - 1) * stride >= size + padding:
        count -= 1
    return Axis(size, window, stride, padding, dilation, reach, count)


def is_inside(axis: Axis) -> bool:
    """Return whether no window reaches out of the image."""
    return axis.padding == 0 and (axis.count - 1) * axis.stride + axis.reach <= axis.size


def is_single(axis: Axis) -> bool:
    """Return whether there is one window, of all elements, whatever the stride."""
    return axis.size + 2 * axis.padding == axis.reach


def counts_all(axis: Axis, count_padding: bool) -> bool:
    """Return whether each sum is divided by all elements of its window along the axis."""
    end = (axis.count - 1) * axis.stride - axis.padding + axis.window
    return end <= axis.size + axis.padding if count_padding else axis.padding == 0 and end <= axis.size


def axes(height: int, width: int, values: Mapping[str, Any]) -> tuple[Axis, Axis]:
    """Return the windows of images of a size along rows and along columns, from dims and attributes of a problem."""
    R, S, ceil = values["R"], values["S"], values["ceil"]
    return (
        axis(height, R, values["stride_h"], values["padding_h"], values.get("dilation_h", 1), ceil),
        axis(width, S, values["stride_w"], values["padding_w"], values.get("dilation_w", 1), ceil),
    )


def windows(problem: Problem) -> Windows:
    """Return the windows of a problem."""
    values = problem.values
    rows, columns = axes(values["H"], values["W"], values)
    is_nhwc, element_bytes = values["layout"] == "nhwc", itemsize(problem.dtype)
    vector, elements = 16 // element_bytes, rows.window * columns.window
    inside = is_inside(rows) and is_inside(columns)
    is_contiguous = inside and columns.window == columns.size and columns.dilation == rows.dilation == 1
    is_grouped = is_contiguous and not is_nhwc and power_of_2_in(vector, elements) < vector
    return Windows(
        images=values["B"],
        channels=values["C"],
        rows=rows,
        columns=columns,
        is_nhwc=is_nhwc,
        element_bytes=element_bytes,
        vector=vector,
        outputs=values["B"] * values["C"] * rows.count * columns.count,
        elements=elements,
        is_inside=inside,
        is_contiguous=is_contiguous,
        is_grouped=is_grouped,
        row_length=elements + (vector - 1 if is_grouped else 0) if is_contiguous else columns.window,
    )


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


def images(problem: Problem) -> Mapping[str, Operand]:
    """Return x (B, C, H, W) and out (B, C, P, Q), channels last in memory if the layout says so.

    Raises:
        UsageError: no window fits the image, or the padding is more than half a window.
    """
    found = windows(problem)
    check_axis(problem.op, "rows", found.rows)
    check_axis(problem.op, "columns", found.columns)

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
