"""Checks and properties of tensors and scalars that calls share."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real

import torch
from torch import Tensor

from tuner.errors import UsageError
from tuner.kernels.spec import Kernel, dtype_name

Tensors = Mapping[str, Tensor]
"""Tensors by operand name, in the order of `OpCall.takes_tensors`."""


def check_matrices(op: str, tensors: Tensors) -> None:
    """Raise UsageError unless each tensor has two dims."""
    for name, tensor in tensors.items():
        if tensor.ndim != 2:
            raise UsageError(
                f"{op} takes matrices, and {name} has shape {shape(tensor)}; "
                f"make it one, as in {name}.reshape(-1, {name}.shape[-1])"
            )


def check_one_device(op: str, tensors: Tensors) -> None:
    """Raise UsageError unless all tensors are on the device of the first."""
    (first, one), *others = tensors.items()
    for name, tensor in others:
        if tensor.device != one.device:
            raise UsageError(
                f"{op} takes tensors on one device, and {first} is on {one.device} but {name} is on "
                f"{tensor.device}; move one of them with .to()"
            )


def check_strided(op: str, tensors: Mapping[str, object]) -> None:
    """Raise UsageError unless these are tensors whose elements lie in memory at strides, each a plain number."""
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise UsageError(f"{op} takes tensors, and {name} is {kind_of(tensor)}; convert it with torch.as_tensor()")
        if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            raise UsageError(
                f"{op} is not known to torch.func, and {name} is inside one of its transforms; "
                "call the op outside of it, or call torch instead"
            )
        if tensor.is_nested or tensor.layout is not torch.strided:
            kind = "nested" if tensor.is_nested else str(tensor.layout).removeprefix("torch.").removeprefix("_")
            raise UsageError(
                f"{op} takes dense tensors, and {name} is {kind}; make it one with .to_dense(), or pad a nested one"
            )
        if tensor.is_quantized:
            raise UsageError(f"{op} takes plain numbers, and {name} is quantized; convert it with .dequantize()")


def checked_scalars(kernel: Kernel, given: Mapping[str, object]) -> dict[str, float]:
    """Return the scalars of a launch as floats, those that are not given too. Raises UsageError for what is no number.

    A tensor is refused: its value may change after the launch is prepared.
    """
    for name, value in given.items():
        if not isinstance(value, Real):
            raise UsageError(f"{kernel.op}'s {name} is a number, not {kind_of(value)}; convert it with float()")
    return {name: float(value) for name, value in {**kernel.scalars, **given}.items()}  # type: ignore[arg-type]


def kind_of(value: object) -> str:
    """Return the type of a value, with its module unless it is one of Python's, as messages show it."""
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def is_on_host(tensor: Tensor) -> bool:
    """Return whether the elements of a tensor are in the memory of the host."""
    return bool(tensor.device.type == "cpu")


def same_place(x: Tensor, y: Tensor) -> bool:
    """Return whether elements of the same index have the same address in tensors of one shape."""
    return x.data_ptr() == y.data_ptr() and all(
        a == b for a, b, size in zip(x.stride(), y.stride(), x.shape, strict=True) if size > 1
    )


def rows_without_gaps(tensor: Tensor) -> bool:
    """Return whether the elements of each row of a matrix are neighbours in memory."""
    return bool(tensor.is_contiguous() or tensor.shape[1] == 1 or tensor.stride(1) == 1)


def shape(tensor: Tensor) -> tuple[int, ...]:
    """Return the shape as a plain tuple, as messages show it."""
    return tuple(tensor.shape)


def short_name(dtype: torch.dtype) -> str | None:
    """Return the short name of a dtype (`bf16`), or None for a dtype that no kernel has."""
    try:
        return dtype_name(dtype)
    except UsageError:
        return None
