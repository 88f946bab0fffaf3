"""A call of an autotuned function as plain data. `describe` reads no device; `complete` adds grids and contents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import triton.language as tl
from triton.runtime.autotuner import Autotuner, Config
from triton.tools.tensor_descriptor import TensorDescriptor

from tuner.captured.call import (
    Argument,
    CapturedCall,
    Contents,
    DescriptorArgument,
    DtypeArgument,
    Function,
    TensorArgument,
)
from tuner.errors import UsageError
from tuner.kernels.dtypes import dtype_name, shown
from tuner.kernels.spec import Value
from tuner.triton.aliasing import shared
from tuner.triton.configs import dtype_in_triton, plain_value, values_of
from tuner.triton.contents import contents_of
from tuner.triton.grids import grids_of
from tuner.triton.place import function_of, op_of
from tuner.triton.refusal import CannotCapture
from tuner.triton.settings import AutotuneSettings

_SETTINGS = AutotuneSettings()
_NOT_ARGUMENTS = ("grid", "warmup")


def describe(
    autotuner: Autotuner,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    pruned: Sequence[Config] | None = None,
    function: Function | None = None,
) -> CapturedCall:
    """Return a call without grids and contents. The device is not read.

    Args:
        args: positional arguments of the call.
        kwargs: its keyword arguments; `grid` and `warmup` are left out.
        pruned: configs after pruning; None prunes them now.
        function: place of the function; None finds it.

    Raises:
        CannotCapture: the function cannot be loaded elsewhere, or an argument or a config is no plain data.
    """
    function = function_of(autotuner) if function is None else function
    named = dict(zip(autotuner.arg_names, args, strict=False))
    given = {**named, **kwargs}
    if pruned is None:
        pruned = pruned_configs(autotuner, named, kwargs)
    arguments = {name: _argument(name, given[name]) for name in autotuner.arg_names if name in given}
    return CapturedCall(
        function=function,
        op=op_of(function),
        key={name: _key_value(name, given[name]) for name in autotuner.keys if name in arguments},
        arguments=arguments,
        configs=values_of(pruned, autotuner.configs),
        options={
            name: plain_value(value, f"the option {name}")
            for name, value in kwargs.items()
            if name not in arguments and name not in _NOT_ARGUMENTS
        },
        reset=tuple(name for name in autotuner.reset_to_zero if _is_tensor(arguments.get(name))),
        restored=tuple(name for name in autotuner.restore_value if _is_tensor(arguments.get(name))),
    )


def complete(
    call: CapturedCall,
    autotuner: Autotuner,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    grid: Any,
    *,
    values: bool = True,
    settings: AutotuneSettings = _SETTINGS,
) -> CapturedCall:
    """Return a described call with its grids, the contents of its tensors, and which tensors are the same.

    It waits for the device.

    Args:
        grid: the grid as the caller gives it: a tuple, or a function of the arguments by name.
        values: whether integers of small tensors are kept; their range and whether they are sorted are kept anyway.

    Raises:
        CannotCapture: tensors overlap partly, or no grid can be evaluated.
    """
    given = {**dict(zip(autotuner.arg_names, args, strict=False)), **kwargs}
    tensors = {name: _tensor(given[name]) for name, each in call.arguments.items() if _is_tensor(each)}
    same = shared(tensors)
    contents = contents_of({name: x for name, x in tensors.items() if name not in same}, values, settings)
    arguments: dict[str, Argument] = {}
    for name, argument in call.arguments.items():
        if isinstance(argument, TensorArgument):
            argument = _completed(argument, name, same, contents)
        elif isinstance(argument, DescriptorArgument):
            argument = replace(argument, base=_completed(argument.base, name, same, contents))
        arguments[name] = argument
    return replace(call, arguments=arguments, grids=grids_of(call, autotuner, given, grid, settings.max_grids))


def pruned_configs(autotuner: Autotuner, named: Mapping[str, Any], kwargs: Mapping[str, Any]) -> list[Config]:
    """Return the configs after pruning, as Triton prunes them.

    Args:
        named: positional arguments by name.
    """
    own = object.__new__(type(autotuner))  # a copy, since other threads prune and launch with their own arguments
    own.__dict__.update(autotuner.__dict__, nargs=dict(named))
    return list(own.prune_configs(dict(kwargs)))


def _is_tensor(argument: Argument) -> bool:
    return isinstance(argument, TensorArgument | DescriptorArgument)


def _tensor(value: Any) -> torch.Tensor:
    """Return the tensor that an argument is, or that a descriptor describes."""
    return value.base if isinstance(value, TensorDescriptor) else value


def _completed(
    tensor: TensorArgument, name: str, same: Mapping[str, str], contents: Mapping[str, Contents]
) -> TensorArgument:
    return replace(tensor, same_as=same[name]) if name in same else replace(tensor, contents=contents[name])


def _key_value(name: str, value: Any) -> Value:
    if isinstance(value, tl.constexpr):
        value = value.value
    if isinstance(value, tl.dtype):
        return dtype_in_triton(value)
    if isinstance(value, torch.Tensor):
        raise CannotCapture(f"a key has numbers, texts and dtypes, and {name} is a tensor; name its sizes instead")
    return plain_value(value, f"the argument {name} in the key")


def _argument(name: str, value: Any) -> Argument:
    """Return an argument as plain data. Raises CannotCapture if it cannot be."""
    if isinstance(value, torch.Tensor):
        return _described(name, value)
    if isinstance(value, tl.constexpr):
        value = value.value
    if isinstance(value, tl.dtype):
        return DtypeArgument(dtype_in_triton(value))
    if isinstance(value, TensorDescriptor):
        return DescriptorArgument(
            base=_described(name, value.base),
            shape=tuple(map(int, value.shape)),
            strides=tuple(map(int, value.strides)),
            block_shape=tuple(map(int, value.block_shape)),
            padding=getattr(value, "padding", "zero"),
        )
    if isinstance(value, tuple | list):
        raise CannotCapture(f"a captured call has no tuples, and {name} is {shown(value)}; pass its items one by one")
    return plain_value(value, f"the argument {name}")


def _described(name: str, tensor: torch.Tensor) -> TensorArgument:
    try:
        dtype = dtype_name(tensor.dtype)
    except UsageError as error:
        raise CannotCapture(f"the argument {name}: {error}") from error
    if tensor.layout is not torch.strided:
        raise CannotCapture(f"a captured call has dense tensors, and {name} is {tensor.layout}; pass its parts")
    return TensorArgument(tuple(tensor.shape), tuple(tensor.stride()), dtype, tensor.data_ptr() % 16)
