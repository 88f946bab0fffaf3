"""The operands of a captured call: its tensors, filled as they were when the call was captured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import isclose, isfinite, prod, sqrt
from typing import Any

from tuner.captured.call import (
    Argument,
    CapturedCall,
    Contents,
    DescriptorArgument,
    Role,
    TensorArgument,
)
from tuner.errors import UsageError
from tuner.kernels.fields import overlaps
from tuner.kernels.launch import distinct
from tuner.kernels.spec import Operand, torch_dtype


@dataclass(frozen=True)
class FillSettings:
    """Settings of inputs that are drawn like the elements of a captured tensor."""

    uniform_within: float = 0.05
    """Elements are drawn uniformly if their standard deviation differs by at most this share from that of a uniform
    distribution over the same range. Source: chosen."""


FILL_SETTINGS = FillSettings()
_DUMMY = Contents(low=0.0, high=1.0)
"""Drawn in place of floats that are all zero, as those of a warm-up are: with them, wrong configs give right results.
One element alone is kept, since it may be a flag."""


def tensor_of(argument: Argument) -> TensorArgument | None:
    """Return the tensor of an argument: itself, or the one under a descriptor; None if it has none."""
    if isinstance(argument, DescriptorArgument):
        return argument.base
    return argument if isinstance(argument, TensorArgument) else None


def holders(arguments: Mapping[str, Argument]) -> dict[str, str]:
    """Return the operand's name for each tensor argument: its own, or that of the earlier argument it equals."""
    tensors = {name: tensor for name, argument in arguments.items() if (tensor := tensor_of(argument)) is not None}
    return {name: tensor.same_as or name for name, tensor in tensors.items()}


def operands_of(call: CapturedCall) -> dict[str, Operand]:
    """Return the operands of a call, by the names of the arguments.

    Before an examination each is `inout`, except that expanded tensors are `in`.

    Raises:
        UsageError: elements of a tensor share memory by other strides than 0.
    """
    held = holders(call.arguments)
    reset = {held[name] for name in call.reset if name in held}
    found = {}
    for name, holder in held.items():
        if name != holder:
            continue
        tensor = tensor_of(call.arguments[name])
        assert tensor is not None
        found[name] = Operand(
            shape=tensor.shape,
            dtype=tensor.dtype,
            role=_role(call, name, tensor),
            strides=tensor.strides,
            fill=_zero if name in reset else fill_of(tensor),
            offset=tensor.offset,
        )
    return found


def _role(call: CapturedCall, name: str, tensor: TensorArgument) -> Role:
    """Return the role of a tensor: as the examination found it, or `inout` before one."""
    if call.examined is not None:
        return call.examined.roles.get(name, "in")
    shape, strides = tensor.shape, tensor.strides
    if not all(shape) or not overlaps(shape, strides):
        return "inout"
    steps = [(size, stride) for size, stride in zip(shape, strides, strict=True) if stride]
    if steps and overlaps(*map(tuple, zip(*steps, strict=True))):
        raise UsageError(
            f"elements of a captured tensor share no memory unless it is expanded, and those of {name} overlap "
            f"by strides {strides}; copy it before the call"
        )
    return "in"


def fill_of(tensor: TensorArgument) -> Callable[[Any, Any], object] | None:
    """Return the function that fills an operand; None for the usual random numbers."""
    contents = tensor.contents
    if contents.values is not None:
        return partial(_by_value, contents.values)
    is_float = tensor.dtype.startswith(("fp", "bf"))
    if contents.low is None or contents.high is None or not isfinite(contents.low) or not isfinite(contents.high):
        is_index = tensor.dtype.startswith("int") and tensor.dtype != "int8"
        return _zero if is_index else None  # random indices would point outside the tensor
    if contents.low == contents.high == 0 and is_float and prod(tensor.shape) > 1:
        return partial(_floats, _DUMMY)
    if contents.low == contents.high:
        return partial(_constant, contents.low)
    return partial(_floats if is_float else _integers, contents)


def _zero(tensor: Any, generator: Any) -> None:
    distinct(tensor).zero_()


def _constant(value: float, tensor: Any, generator: Any) -> None:
    distinct(tensor).fill_(value if tensor.is_floating_point() else int(value))


def _by_value(values: tuple[int, ...], tensor: Any, generator: Any) -> None:
    """Fill with values in the order of the indices. Along an expanded dim the first one counts."""
    import torch

    elements = torch.tensor(values, dtype=torch.int64).reshape(tensor.shape)
    firsts = tuple(slice(1 if stride == 0 else None) for stride in tensor.stride())
    distinct(tensor).copy_(elements[firsts])


def _integers(contents: Contents, tensor: Any, generator: Any) -> None:
    """Draw integers from the lowest to the highest, with both at the ends if they are sorted."""
    import torch

    tensor = distinct(tensor)
    low, high = map(int, _ends(contents))
    beyond = high + 1 if tensor.dtype == torch.bool or high < torch.iinfo(tensor.dtype).max else None
    tensor.random_(low, beyond, generator=generator)
    _sort(contents, tensor)


def _floats(contents: Contents, tensor: Any, generator: Any, settings: FillSettings = FILL_SETTINGS) -> None:
    """Draw floats with the captured mean and deviation, from the lowest to the highest."""
    import torch

    tensor = distinct(tensor)
    low, high = _ends(contents)
    drawn = tensor if tensor.element_size() > 1 else torch.empty_like(tensor, dtype=torch.float16)
    mean, deviation = contents.mean, contents.deviation
    if mean is None or not deviation or not isfinite(mean + deviation) or _is_uniform(deviation, low, high, settings):
        drawn.uniform_(low / 2, high / 2, generator=generator).mul_(2)  # torch draws from half a dtype's range at most
    else:
        drawn.normal_(mean, deviation, generator=generator)
    tensor.copy_(drawn.clamp_(low, high))
    _sort(contents, tensor)


def _is_uniform(deviation: float, low: float, high: float, settings: FillSettings) -> bool:
    return isclose(deviation, (high - low) / sqrt(12), rel_tol=settings.uniform_within)


def _ends(contents: Contents) -> tuple[float, float]:
    assert contents.low is not None
    assert contents.high is not None
    return contents.low, contents.high


def _sort(contents: Contents, tensor: Any) -> None:
    """Sort a vector that was sorted. Integers get the lowest and the highest value at its ends."""
    if not contents.is_sorted or tensor.ndim != 1 or tensor.numel() < 2:
        return
    tensor.copy_(tensor.sort().values)
    if not tensor.is_floating_point():
        tensor[0], tensor[-1] = map(int, _ends(contents))


def fresh(operand: Operand, device: Any) -> Any:
    """Return an uninitialised tensor with the shape, strides and offset of an operand."""
    import torch

    dtype = getattr(torch, torch_dtype(operand.dtype))
    steps = zip(operand.shape, operand.element_strides, strict=True)
    span = 1 + sum((size - 1) * stride for size, stride in steps) if all(operand.shape) else 0
    memory = torch.empty(operand.offset + span * dtype.itemsize, dtype=torch.uint8, device=device)
    elements = memory[operand.offset :].view(dtype)
    return elements.as_strided(operand.shape, operand.element_strides, elements.storage_offset())
