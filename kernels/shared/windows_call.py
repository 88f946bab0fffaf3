"""What calls of pooling have in common: arguments as torch takes them, shapes, memory formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tuner.errors import UsageError
from tuner.kernels.calling import Tensors, check_strided, empty, shape
from tuner.kernels.shared.windows import Axis, check_axis

Size = int | Sequence[int]
"""A number for rows and columns alike, or one for each."""
Axes = tuple[Axis, Axis]

WINDOW: Mapping[str, Any] = {
    "R": 2, "S": 2, "stride_h": 2, "stride_w": 2, "padding_h": 0, "padding_w": 0, "ceil": False,
}  # fmt: skip
"""Attributes of each call of pooling."""


def pair(op: str, name: str, given: Size) -> tuple[int, int]:
    """Return an argument's numbers for rows and columns.

    Raises:
        UsageError: it is neither a whole number nor one or two of them.
    """
    numbers = (given,) if _is_whole(given) else tuple(given) if isinstance(given, list | tuple) else ()
    if len(numbers) not in (1, 2) or not all(_is_whole(number) for number in numbers):
        raise UsageError(f"{op} takes a whole number or a pair as {name}, not {given!r}; write (ROWS, COLUMNS)")
    return numbers[0], numbers[-1]


def _is_whole(number: object) -> bool:
    """Return whether a value is a whole number; those of dynamic shapes are."""
    return isinstance(number, int | torch.SymInt) and not isinstance(number, bool)


def window(
    op: str, kernel_size: Size, stride: Size | None, padding: Size, ceil_mode: bool, dilation: Size = 1
) -> dict[str, Any]:
    """Return the arguments of a call as attributes. Without a stride, or with an empty one, windows do not overlap.

    Raises:
        UsageError: an argument is no number or pair, or ceil_mode no bool.
    """
    R, S = pair(op, "kernel_size", kernel_size)
    stride_h, stride_w = (R, S) if stride is None or stride in ((), []) else pair(op, "stride", stride)
    padding_h, padding_w = pair(op, "padding", padding)
    dilation_h, dilation_w = pair(op, "dilation", dilation)
    if type(ceil_mode) is not bool:
        raise UsageError(f"{op} takes True or False as ceil_mode, not {ceil_mode!r}; replace it")
    return {
        "R": R, "S": S, "stride_h": stride_h, "stride_w": stride_w, "padding_h": padding_h, "padding_w": padding_w,
        "ceil": ceil_mode, "dilation_h": dilation_h, "dilation_w": dilation_w,
    }  # fmt: skip


def axes(height: int, width: int, attributes: Mapping[str, Any]) -> Axes:
    """Return the windows of images of this size along rows and columns."""

    def axis(size: int, window: str, letter: str) -> Axis:
        stride, padding = attributes[f"stride_{letter}"], attributes[f"padding_{letter}"]
        return Axis(
            size, attributes[window], stride, padding, attributes.get(f"dilation_{letter}", 1), attributes["ceil"]
        )

    return axis(height, "R", "h"), axis(width, "S", "w")


def check_image(op: str, x: Tensor) -> None:
    """Raise UsageError unless x is a tensor (B, C, H, W) or (C, H, W), of sizes from 1 on but for B."""
    check_strided(op, {"x": x})
    if x.ndim not in (3, 4) or 0 in x.shape[-3:]:
        raise UsageError(
            f"{op} takes images x (B, C, H, W) or (C, H, W) without a size of 0 but B, not {shape(x)}; reshape it"
        )


def out_shape(op: str, x: Tensor, attributes: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the shape of out.

    Raises:
        UsageError: x is no image, a number is out of range, or no window fits.
    """
    check_image(op, x)
    rows, columns = axes(x.shape[-2], x.shape[-1], attributes)
    check_axis(op, "rows", rows)
    check_axis(op, "columns", columns)
    return (*x.shape[:-2], rows.count, columns.count)


def empty_out(op: str, x: Tensor, attributes: Mapping[str, Any]) -> Tensor:
    """Return a tensor for the outputs, with the memory format of x: channels last if x is, else contiguous."""
    out = empty(op, x, lambda: out_shape(op, x, attributes))
    if is_nhwc(x):
        B, C, P, Q = (1, *out.shape)[-4:]
        out = out.view(B, P, Q, C).permute(0, 3, 1, 2)
        return out[0] if x.ndim == 3 else out
    return out


def is_nhwc(x: Tensor) -> bool:
    """Return whether images lie in memory channels last, and not also channels first."""
    if x.is_contiguous():
        return False
    whole = x if x.ndim == 4 else x.unsqueeze(0)
    return bool(whole.is_contiguous(memory_format=torch.channels_last))


def viewed(tensors: Tensors, **attributes: Any) -> Tensors | None:
    """Return views (B, C, H, W) of x and out, or None unless both have the same memory format."""
    whole = {name: tensor if tensor.ndim == 4 else tensor.unsqueeze(0) for name, tensor in tensors.items()}
    for memory_format in (torch.contiguous_format, torch.channels_last):
        if all(tensor.is_contiguous(memory_format=memory_format) for tensor in whole.values()):
            return whole
    return None


def values(tensors: Tensors, **attributes: Any) -> dict[str, object]:
    """Return the values of the problem, the same for calls that compute the same.

    A stride does not matter if there is one window, nor does ceil_mode if it adds no window.
    """
    x = tensors["x"]
    rows, columns = axes(x.shape[2], x.shape[3], attributes)
    floor = axes(x.shape[2], x.shape[3], {**attributes, "ceil": False})
    stride_h = rows.window if rows.is_single else rows.stride
    return {
        **dict(zip("BCHW", x.shape, strict=True)),
        "dtype": x.dtype,
        "stride_h": stride_h,
        "stride_w": stride_h if columns.is_single else columns.stride,
        "ceil": (rows.count, columns.count) != (floor[0].count, floor[1].count),
        "layout": "nchw" if all(tensor.is_contiguous() for tensor in tensors.values()) else "nhwc",
    }
