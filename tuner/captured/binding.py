"""The launch of a captured call: the jit function with its arguments, a config and the values of heuristics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tuner.captured.autotuned import Autotuned, Heuristic
from tuner.captured.call import CapturedCall, DescriptorArgument, DtypeArgument, TensorArgument
from tuner.captured.inputs import holders
from tuner.errors import KernelFault
from tuner.kernels.parts import KernelPart
from tuner.kernels.spec import Launch, Value


def arguments_of(call: CapturedCall, tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by name, with these tensors as its operands.

    Each call makes new descriptors, since hooks change their block shapes.
    """
    held = holders(call.arguments)
    found: dict[str, Any] = {}
    for name, argument in call.arguments.items():
        if isinstance(argument, TensorArgument):
            found[name] = tensors[held[name]]
        elif isinstance(argument, DescriptorArgument):
            found[name] = _descriptor(argument, tensors[held[name]])
        elif isinstance(argument, DtypeArgument):
            found[name] = _dtype(argument)
        else:
            found[name] = argument
    return found


def launch_of(
    call: CapturedCall, autotuned: Autotuned, config: Mapping[str, Value], tensors: Mapping[str, Any]
) -> Launch:
    """Return the launch of a config on tensors of the call's operands.

    Raises:
        KernelFault: no grid is known for the config, the function has other parameters now, or a heuristic raises.
    """
    grid = call.grids.of(config)
    if grid is None:
        raise KernelFault(missing_grid(call, config), autotuned.place)
    given = arguments_of(call, tensors)
    _check_parameters(autotuned, given)
    values = {**call.options, **given}
    for name, heuristic in autotuned.outer.items():
        if name not in values:
            values[name] = _evaluated(name, heuristic, values)
    values |= autotuned.chosen(config)
    if autotuned.configs:
        values.setdefault("num_ctas", 1)  # Triton's configs have it, so that heuristics and hooks may ask for it
    for name, heuristic in autotuned.inner.items():
        values[name] = _evaluated(name, heuristic, values)
    parameters = autotuned.parameters
    if missing := [name for name, has_default in parameters.items() if name not in values and not has_default]:
        raise KernelFault(
            f"a captured call has each argument of its function, and {missing[0]} is missing; capture it again",
            autotuned.place,
        )
    args = []
    for name in parameters:
        if name not in values:
            break
        args.append(values.pop(name))
    return Launch(autotuned.jit, grid, tuple(args), values, autotuned.pre_hook(config))


def missing_grid(call: CapturedCall, config: Mapping[str, Value]) -> str:
    """Return why a config has no grid."""
    values = ", ".join(f"{name}={config.get(name)}" for name in call.grids.knobs)
    about = f"with {values}" if values else "of this call"
    return f"a config needs a captured grid, and none {about} was captured; capture the call again"


def _check_parameters(autotuned: Autotuned, given: Mapping[str, Any]) -> None:
    for name in given:
        if name not in autotuned.parameters:
            raise KernelFault(
                f"a captured call has the arguments of its function, and {autotuned.name} has no {name} now; "
                "capture it again",
                autotuned.place,
            )


def _evaluated(name: str, heuristic: Heuristic, values: Mapping[str, Any]) -> Any:
    return KernelPart(f"the heuristic of {name}", heuristic)(dict(values))


def place_of(function: Callable[..., Any]) -> str:
    """Return file and first line of a function; empty for one that is not written in Python."""
    return KernelPart("", function).place


def _dtype(argument: DtypeArgument) -> Any:
    import triton.language as tl

    return getattr(tl, argument.dtype)


def _descriptor(argument: DescriptorArgument, base: Any) -> Any:
    from triton.tools.tensor_descriptor import TensorDescriptor

    shape, strides, block = map(list, (argument.shape, argument.strides, argument.block_shape))
    more = () if argument.padding == "zero" else (argument.padding,)
    return TensorDescriptor(base, shape, strides, block, *more)
