"""`tuner.ops.avg_pool2d`: its tensors, and the problem that they are."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from tuner.errors import UsageError
from tuner.kernels.avg_pool2d.definition import KERNEL
from tuner.kernels.calling import OpCall, Tensors, cached, in_torch
from tuner.kernels.shared import windows_call
from tuner.kernels.shared.windows_call import WINDOW, Size, empty_out, image_of, image_size, out_shape, viewed, window


def avg_pool2d(
    x: Tensor,
    kernel_size: Size | None = None,
    stride: Size | None = None,
    padding: Size = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Return the mean of each window of images x (B, C, H, W) or (C, H, W), as torch's `avg_pool2d` does.

    Sums are in fp32. The output has the memory format of x, channels last or contiguous; a copy is made of other
    strides.

    Args:
        kernel_size, stride, padding: a number, or a pair for rows and columns. Without a kernel_size, a window
            is the whole image.
        count_include_pad: count the padding in the number of elements that a sum is divided by.
        divisor_override: divide by this number instead.

    Raises:
        UsageError: as `gemm`, and as torch for windows that do not fit.
    """
    if divisor_override is not None and not is_divisor(divisor_override):
        raise UsageError(
            "avg_pool2d takes a whole number of 64 bits but 0 as divisor_override, "
            f"not {divisor_override!r:.40}; replace it, or leave it out"
        )
    attributes, shape = known(image_of("avg_pool2d", x), kernel_size, stride, padding, ceil_mode, count_include_pad)
    if out is None:
        out = empty_out("avg_pool2d", x, shape)
    launch(x, out, *attributes, 0 if divisor_override is None else float(divisor_override))
    return out


@cached
def known(
    image: tuple[int, ...],
    kernel_size: Size | None,
    stride: Size | None,
    padding: Size,
    ceil_mode: bool,
    count_include_pad: bool,
) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    """Return the attributes of a call in their order, and the shape of out. Raises UsageError if they do not fit."""
    if kernel_size is None:
        if stride is not None or padding != 0:
            raise UsageError(
                "avg_pool2d takes stride and padding with a kernel_size, not with None; give it, or neither"
            )
        kernel_size = image_size("avg_pool2d", image)
    return window("avg_pool2d", image, kernel_size, stride, padding, ceil_mode, count_include_pad=count_include_pad)


def is_divisor(number: object) -> bool:
    """Return whether torch divides by a number: a whole one of 64 bits, and not 0."""
    return type(number) is int and number != 0 and -(2**63) <= number < 2**63


def values(tensors: Tensors, **attributes: Any) -> dict[str, object]:
    """Return the values of the problem; without padding it does not matter whether padding is counted."""
    padded = attributes["padding_h"] or attributes["padding_w"]
    found = windows_call.values(tensors, **attributes)
    return {**found, "count_include_pad": attributes["count_include_pad"] or not padded}


CALL = OpCall(
    kernel=KERNEL,
    function=avg_pool2d,
    takes_tensors="x out!",
    takes_attributes={**WINDOW, "count_include_pad": True},
    shapes=lambda tensors, **attributes: {"out": out_shape("avg_pool2d", tensors["x"].shape, attributes)},
    values=values,
    viewed=viewed,
)
launch = in_torch(CALL)
