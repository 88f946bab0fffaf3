"""`tuner.ops.conv2d`: its tensors, and the problem that they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from tuner.errors import UsageError
from tuner.kernels.calling import NOT_STRIDED, OpCall, Tensors, cached, check_strided, in_torch
from tuner.kernels.conv2d.definition import KERNEL
from tuner.kernels.conv2d.layer import check_axis
from tuner.kernels.conv2d.signature import MOST_DILATION, MOST_PADDING
from tuner.kernels.shared.windows import Axis, axis, is_single
from tuner.kernels.shared.windows_call import Size, pair

WINDOW: Mapping[str, Any] = {
    "stride_h": 1, "stride_w": 1, "padding_h": 0, "padding_w": 0, "dilation_h": 1, "dilation_w": 1,
}  # fmt: skip
"""Attributes of a call's windows with their defaults."""


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size | str = 0,
    dilation: Size = 1,
    groups: int = 1,
    *,
    activation: str = "none",
    out: Tensor | None = None,
) -> Tensor:
    """Return the convolution of x (B, C, H, W) or (C, H, W) by weight (O, C, R, S), as torch's `conv2d` does.

    The output is channels last, whatever x is; x and weight are copied if they are not. Sums are in fp32. Products of
    fp32 are computed as `torch.backends.cudnn.conv.fp32_precision` says: in `tf32`, torch's default, else in `ieee`.

    Args:
        bias: (O,), added to each pixel.
        stride, padding, dilation: a number, or a pair for rows and columns; padding may be `valid` or `same`.
        groups: 1.
        activation: `none`, `relu`, `silu` or `gelu`.
        out: channels last.

    Raises:
        UsageError: as `gemm`, and as torch for windows that do not fit.
    """
    if groups != 1:
        raise UsageError(
            f"conv2d computes one group, not {groups!r}; call torch for grouped and depthwise convolutions"
        )
    try:
        image, filters = x.shape, weight.shape
    except NOT_STRIDED:
        check_strided("conv2d", {"x": x, "weight": weight})
        raise
    attributes, size = known(image, filters, stride, padding, dilation)
    if out is None:
        strides = (size[-3] * size[-2] * size[-1], 1, size[-1] * size[-3], size[-3])[-len(size) :]
        out = torch.empty_strided(size, strides, dtype=x.dtype, device=x.device)
    launch(x, weight, bias, out, *attributes, activation)
    return out


@cached
def known(
    image: tuple[int, ...], filters: tuple[int, ...], stride: Size, padding: Size | str, dilation: Size
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the attributes of a call in their order, and the shape of out. Raises UsageError if they do not fit."""
    check_shapes(image, filters)
    attributes: dict[str, int] = {}
    for name, given in {"stride": stride, "padding": 0 if isinstance(padding, str) else padding}.items():
        attributes[f"{name}_h"], attributes[f"{name}_w"] = pair("conv2d", name, given)
    attributes["dilation_h"], attributes["dilation_w"] = pair("conv2d", "dilation", dilation)
    if isinstance(padding, str):
        attributes |= named_padding(padding, filters, attributes)
    return tuple(attributes.values()), out_shape(image, filters, attributes)


def named_padding(padding: str, filters: tuple[int, ...], attributes: Mapping[str, int]) -> dict[str, int]:
    """Return the padding that torch calls `valid` or `same`. Raises UsageError if it is not the same on each side."""
    if padding == "valid":
        return {}
    if padding != "same" or (attributes["stride_h"], attributes["stride_w"]) != (1, 1):
        raise UsageError(
            f"conv2d's padding is a number, a pair, 'valid', or 'same' with a stride of 1, not {padding!r} with "
            f"{(attributes['stride_h'], attributes['stride_w'])}; state the number"
        )
    reach = {letter: attributes[f"dilation_{letter}"] * (filters[dim] - 1) for letter, dim in (("h", -2), ("w", -1))}
    if any(length % 2 for length in reach.values()):
        raise UsageError(
            f"conv2d pads each side alike, and 'same' pads windows of {tuple(filters[-2:])} on one side more; "
            "pad x first"
        )
    return {f"padding_{letter}": length // 2 for letter, length in reach.items()}


def check_shapes(image: tuple[int, ...], filters: tuple[int, ...]) -> None:
    """Raise UsageError unless x and weight have the shapes of images and filters with equal channels."""
    if len(image) not in (3, 4) or 0 in image[-3:] or len(filters) != 4 or 0 in filters:
        raise UsageError(
            "conv2d takes images x (B, C, H, W) or (C, H, W) and filters weight (O, C, R, S), without a size of 0 but "
            f"B, not {tuple(image)} and {tuple(filters)}; reshape them"
        )
    if image[-3] != filters[1]:
        raise UsageError(
            f"conv2d takes filters of {image[-3]} channels, as x has, not of {filters[1]}; call torch for groups"
        )


def windows(image: tuple[int, ...], filters: tuple[int, ...], attributes: Mapping[str, int]) -> list[Axis]:
    """Return the windows along rows and columns."""
    found = []
    for dim, letter in ((-2, "h"), (-1, "w")):
        stride, padding, dilation = (attributes[f"{name}_{letter}"] for name in ("stride", "padding", "dilation"))
        found.append(axis(image[dim], filters[dim], stride, padding, dilation, ceil=False))
    return found


def out_shape(image: tuple[int, ...], filters: tuple[int, ...], attributes: Mapping[str, int]) -> tuple[int, ...]:
    """Return the shape of out. Raises UsageError if no window fits, or a number is out of range."""
    check_shapes(image, filters)
    rows, columns = windows(image, filters, attributes)
    for name, along in (("rows", rows), ("columns", columns)):
        check_axis(name, along)
        if along.padding > MOST_PADDING or along.dilation > MOST_DILATION:
            raise UsageError(
                f"conv2d takes a padding up to {MOST_PADDING} and a dilation up to {MOST_DILATION}, not "
                f"{along.padding} and {along.dilation} of {name}; pad x first, or call torch"
            )
    return (*image[:-3], filters[0], rows.count, columns.count)


def shapes(tensors: Tensors, activation: str, **attributes: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of bias and out. Raises UsageError if x and weight do not fit."""
    image, filters = tensors["x"].shape, tensors["weight"].shape
    return {"bias": (filters[0],) if len(filters) else (), "out": out_shape(image, filters, attributes)}


def is_last(tensor: Tensor) -> bool:
    """Return whether images lie channels last without gaps."""
    whole = tensor if tensor.ndim == 4 else tensor.unsqueeze(0)
    return bool(whole.is_contiguous(memory_format=torch.channels_last))


def accepts(name: str, tensor: Tensor) -> bool:
    """Return whether the kernel takes these strides."""
    return bool(tensor.is_contiguous()) if name == "bias" else is_last(tensor)


def laid_out(name: str, tensor: Tensor) -> Tensor:
    """Return a copy that is channels last."""
    if name == "bias":
        return tensor.contiguous()
    whole = tensor if tensor.ndim == 4 else tensor.unsqueeze(0)
    copy = whole.contiguous(memory_format=torch.channels_last)
    return copy if tensor.ndim == 4 else copy.squeeze(0)


def viewed(tensors: Tensors, **attributes: Any) -> Tensors | None:
    """Return views (B, C, H, W) of x and out, or None if an input is not channels last.

    Raises:
        UsageError: out is not channels last.
    """
    if not is_last(tensors["out"]):
        raise UsageError(
            f"conv2d writes channels last, and out has strides {tensors['out'].stride()}; omit out, or make it with "
            "memory_format=torch.channels_last"
        )
    if not all(accepts(name, tensor) for name, tensor in tensors.items()):
        return None
    return {name: x.unsqueeze(0) if name in ("x", "out") and x.ndim == 3 else x for name, x in tensors.items()}


def values(tensors: Tensors, activation: str, **attributes: int) -> dict[str, object]:
    """Return the values of the problem, the same for calls that compute the same.

    A stride does not matter if there is one window, of all elements, nor does a dilation if windows have one element.
    """
    x, weight = tensors["x"], tensors["weight"]
    found: dict[str, object] = {**dict(zip("BCHW", x.shape, strict=True)), "O": weight.shape[0]}
    found |= {"R": weight.shape[2], "S": weight.shape[3], "dtype": x.dtype, "bias": "bias" in tensors}
    for letter, along in zip("hw", windows(x.shape, weight.shape, attributes), strict=True):
        found[f"stride_{letter}"] = 1 if is_single(along) else along.stride
        found[f"dilation_{letter}"] = 1 if along.window == 1 else along.dilation
    return found | ({"precision": precision()} if x.dtype == torch.float32 else {})


def precision() -> str:
    """Return how fp32 products are computed, as torch is set for its own convolutions."""
    return "tf32" if torch.backends.cudnn.conv.fp32_precision == "tf32" else "ieee"


CALL = OpCall(
    kernel=KERNEL,
    function=conv2d,
    takes_tensors="x weight bias? out!",
    takes_attributes={**WINDOW, "activation": "none"},
    shapes=shapes,
    values=values,
    accepts=accepts,
    viewed=viewed,
    laid_out=laid_out,
    setting=lambda dtype: precision() if dtype is torch.float32 else "",
)
launch = in_torch(CALL)
