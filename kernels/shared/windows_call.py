"""Calls of pooling: arguments as torch takes them, shapes, memory formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tuner.errors import UsageError
from tuner.kernels.calling import NOT_STRIDED, Tensors, check_strided
from tuner.kernels.shared.windows import axes, check_axis, is_single

Size = int | Sequence[int]
"""A number for rows and columns alike, or one for each."""

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
    op: str,
    image: tuple[int, ...],
    kernel_size: Size,
    stride: Size | None,
    padding: Size,
    ceil_mode: bool,
    **others: Any,
) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    """Return the arguments of a call as attributes, in the order of `WINDOW` and then of the others, and out's shape.

    Without a stride, or with an empty one, windows do not overlap.

    Args:
        image: shape of x.
        others: further arguments, of which `dilation` is a size.

    Raises:
        UsageError: an argument is no number or pair, or ceil_mode no bool; x is no image; or no window fits.
    """
    R, S = pair(op, "kernel_size", kernel_size)
    attributes = {"R": R, "S": S}
    steps = kernel_size if stride is None or stride in ((), []) else stride
    for name, size in {"stride": steps, "padding": padding}.items():
        attributes[f"{name}_h"], attributes[f"{name}_w"] = pair(op, name, size)
    attributes["ceil"] = ceil_mode
    if "dilation" in others:
        attributes["dilation_h"], attributes["dilation_w"] = pair(op, "dilation", others.pop("dilation"))
    for name, value in {"ceil_mode": ceil_mode, **others}.items():
        if type(value) is not bool:
            raise UsageError(f"{op} takes True or False as {name}, not {value!r}; replace it")
    attributes |= others
    return tuple(attributes.values()), out_shape(op, image, attributes)


def image_of(op: str, x: Tensor) -> tuple[int, ...]:
    """Return the shape of x. Raises UsageError if x is no dense tensor."""
    try:
        return x.shape
    except NOT_STRIDED:
        check_strided(op, {"x": x})
        raise


def check_image(op: str, image: tuple[int, ...]) -> None:
    """Raise UsageError unless x has the shape (B, C, H, W) or (C, H, W), with sizes from 1 on but for B."""
    if len(image) not in (3, 4) or 0 in image[-3:]:
        raise UsageError(
            f"{op} takes images x (B, C, H, W) or (C, H, W) without a size of 0 but B, not {tuple(image)}; reshape it"
        )


def image_size(op: str, image: tuple[int, ...]) -> tuple[int, int]:
    """Return the rows and columns of images of a shape. Raises UsageError if it is none of images."""
    check_image(op, image)
    return image[-2], image[-1]


def out_shape(op: str, image: tuple[int, ...], attributes: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the shape of out.

    Raises:
        UsageError: x is no image, a number is out of range, or no window fits.
    """
    check_image(op, image)
    rows, columns = axes(image[-2], image[-1], attributes)
    check_axis(op, "rows", rows)
    check_axis(op, "columns", columns)
    return (*image[:-2], rows.count, columns.count)


def empty_out(op: str, x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return a tensor for the outputs, with the memory format of x: channels last if x is, else contiguous."""
    try:
        if not is_nhwc(x):
            return torch.empty(shape, dtype=x.dtype, device=x.device)
        C, P, Q = shape[-3:]
        strides = (C * P * Q, 1, Q * C, C)[-len(shape) :]
        return torch.empty_strided(shape, strides, dtype=x.dtype, device=x.device)
    except NOT_STRIDED:
        check_strided(op, {"x": x})
        raise


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
    stride_h = rows.window if is_single(rows) else rows.stride
    return {
        **dict(zip("BCHW", x.shape, strict=True)),
        "dtype": x.dtype,
        "stride_h": stride_h,
        "stride_w": stride_h if is_single(columns) else columns.stride,
        "ceil": (rows.count, columns.count) != (floor[0].count, floor[1].count),
        "layout": "nchw" if all(tensor.is_contiguous() for tensor in tensors.values()) else "nhwc",
    }
