"""`tuner.ops.max_pool2d`: its tensors, and the problem that they are."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from tuner.kernels.calling import OpCall, cached, in_torch
from tuner.kernels.max_pool2d.definition import KERNEL
from tuner.kernels.shared.windows_call import WINDOW, Size, empty_out, image_of, out_shape, values, viewed, window


def max_pool2d(
    x: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Return the largest element of each window of images x (B, C, H, W) or (C, H, W), as torch's `max_pool2d` does.

    Padding is -inf, and a window with a NaN is NaN. The output has the memory format of x, channels last or contiguous;
    a copy is made of other strides.

    Args:
        kernel_size, stride, padding, dilation: a number, or a pair for rows and columns.

    Raises:
        UsageError: as `gemm`, and as torch for windows that do not fit.
    """
    attributes, shape = known(image_of("max_pool2d", x), kernel_size, stride, padding, ceil_mode, dilation)
    if out is None:
        out = empty_out("max_pool2d", x, shape)
    launch(x, out, *attributes)
    return out


@cached
def known(
    image: tuple[int, ...], kernel_size: Size, stride: Size | None, padding: Size, ceil_mode: bool, dilation: Size
) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    """Return the attributes of a call in their order, and the shape of out. Raises UsageError if they do not fit."""
    return window("max_pool2d", image, kernel_size, stride, padding, ceil_mode, dilation=dilation)


CALL = OpCall(
    kernel=KERNEL,
    function=max_pool2d,
    takes_tensors="x out!",
    takes_attributes={**WINDOW, "dilation_h": 1, "dilation_w": 1},
    shapes=lambda tensors, **attributes: {"out": out_shape("max_pool2d", tensors["x"].shape, attributes)},
    values=values,
    viewed=viewed,
)
launch = in_torch(CALL)
