"""The right result of a captured call: by its author's reference, or by the agreed config."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from tuner.captured.autotuned import Autotuned
from tuner.captured.binding import arguments_of, launch_of, place_of
from tuner.captured.call import CapturedCall, DescriptorArgument
from tuner.captured.inputs import fresh, holders
from tuner.errors import KernelFault
from tuner.kernels.parts import KernelPart
from tuner.kernels.spec import Operand


def by_agreement(
    call: CapturedCall, autotuned: Autotuned, operands: Mapping[str, Operand], tensors: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what the agreed config writes, as new tensors. The given tensors are only read.

    Raises:
        KernelFault: the call was not examined.
    """
    if call.examined is None or call.examined.agreed is None:
        raise KernelFault(
            "outputs are compared with those of the agreed config, and the call of "
            f"{autotuned.name} was not examined; run tuner search --captured, or give autotune a reference",
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
        KernelFault: it has another parameter, raises, or does not return a tensor for each output.
    """
    function = autotuned.reference
    assert function is not None
    given = {name: tensor.clone() if operands[name].role == "inout" else tensor for name, tensor in tensors.items()}
    arguments = arguments_of(call, given)
    for name, argument in call.arguments.items():
        if isinstance(argument, DescriptorArgument):
            arguments[name] = arguments[name].base
    found = KernelPart("reference", function)(**_taken(function, arguments))
    return _by_operand(call, operands, found, place_of(function))


def _by_operand(call: CapturedCall, operands: Mapping[str, Operand], found: Any, place: str) -> dict[str, Any]:
    """Return the result of a reference as a tensor for each written operand."""
    written = [name for name, operand in operands.items() if operand.role != "in"]
    if not isinstance(found, Mapping):
        if len(written) != 1:
            kind = f"{len(written)} written tensors ({', '.join(written)}), not {type(found).__name__}"
            raise KernelFault(f"reference returns a dict by argument for {kind}; name them", place)
        found = {written[0]: found}
    held: Mapping[Any, str] = holders(call.arguments)
    by_operand = {held.get(name, str(name)): value for name, value in found.items()}
    for name in written:
        shape = getattr(by_operand.get(name), "shape", None)
        if shape is None:
            known = ", ".join(by_operand) or "nothing"
            raise KernelFault(f"reference returns a tensor for each written one, and {name} is not in {known}", place)
        if tuple(shape) != operands[name].shape:
            expected = f"shape {operands[name].shape}, not {tuple(shape)}"
            raise KernelFault(f"reference returns {name} in {expected}; correct it", place)
    return by_operand


def _taken(function: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that a function has parameters for."""
    parameters = inspect.signature(function).parameters.values()
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return dict(arguments)
    for each in parameters:
        if each.name not in arguments and each.default is each.empty and each.kind is not each.VAR_POSITIONAL:
            fault = f"reference takes arguments of the kernel by name, and {each.name} is none; rename it"
            raise KernelFault(fault, place_of(function))
    return {each.name: arguments[each.name] for each in parameters if each.name in arguments}


def _device(tensors: Mapping[str, Any]) -> Any:
    """Return the device of the tensors that have elements. Outputs are meta tensors."""
    import torch

    found = [tensor.device for tensor in tensors.values() if not tensor.is_meta]
    return found[0] if found else torch.device("cuda" if torch.cuda.is_available() else "cpu")
