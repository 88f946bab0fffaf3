"""The right result of a captured call: by its author's reference, or by the config that others agree with."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from tuner.captured.autotuned import Autotuned
from tuner.captured.binding import arguments_of, launch_of
from tuner.captured.call import CapturedCall, DescriptorArgument
from tuner.captured.inputs import fresh, holders
from tuner.errors import KernelFault
from tuner.kernels.spec import Operand


def by_agreement(
    call: CapturedCall, autotuned: Autotuned, operands: Mapping[str, Operand], tensors: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what the agreed config writes, as new tensors. Those given are only read.

    Raises:
        KernelFault: the call was not examined.
    """
    if call.examined is None or call.examined.agreed is None:
        raise KernelFault(
            "outputs are compared with those of a config that others agree with, and the call of "
            f"{autotuned.name} was not examined; examine it, or state reference= in autotune",
            autotuned.place,
        )
    device = _device(tensors)
    outputs = {name: fresh(operand, device) for name, operand in operands.items() if operand.role != "in"}
    for name, output in outputs.items():
        if operands[name].role == "inout":
            output.copy_(tensors[name])
    launch_of(call, autotuned, call.examined.agreed, {**tensors, **outputs})()
    return outputs


def by_author(
    call: CapturedCall, autotuned: Autotuned, operands: Mapping[str, Operand], tensors: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what the author's reference computes, by operand. It gets copies of what the kernel reads and writes.

    Raises:
        KernelFault: it asks for another argument, or returns one tensor for several outputs.
    """
    function = autotuned.reference
    assert function is not None
    given = {name: tensor.clone() if operands[name].role == "inout" else tensor for name, tensor in tensors.items()}
    arguments = arguments_of(call, given)
    for name, argument in call.arguments.items():
        if isinstance(argument, DescriptorArgument):
            arguments[name] = arguments[name].base
    found: Any = function(**_taken(function, arguments))
    if isinstance(found, Mapping):
        held: Mapping[Any, str] = holders(call.arguments)
        return {held.get(name, str(name)): value for name, value in found.items()}
    written = [name for name, operand in operands.items() if operand.role != "in"]
    if len(written) != 1:
        raise KernelFault(
            f"reference returns a dict by argument for {len(written)} written tensors ({', '.join(written)}), "
            f"not {type(found).__name__}; name them"
        )
    return {written[0]: found}


def _taken(function: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that a function has parameters for."""
    parameters = inspect.signature(function).parameters.values()
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return dict(arguments)
    for each in parameters:
        if each.name not in arguments and each.default is each.empty and each.kind is not each.VAR_POSITIONAL:
            raise KernelFault(f"reference takes arguments of the kernel by name, and {each.name} is none; rename it")
    return {each.name: arguments[each.name] for each in parameters if each.name in arguments}


def _device(tensors: Mapping[str, Any]) -> Any:
    """Return the device of the tensors that have elements; outputs come without them."""
    import torch

    found = [tensor.device for tensor in tensors.values() if not tensor.is_meta]
    return found[0] if found else torch.device("cuda" if torch.cuda.is_available() else "cpu")
