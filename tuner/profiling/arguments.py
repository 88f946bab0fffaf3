"""The values of a compiled kernel's parameters, from the arguments of its launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tuner.kernels.launch import ALIGNMENT, Launch

_APART = 1 << 40
"""Distance of the addresses that stand for two tensors, in bytes."""


def parameter_values(
    launch: Launch, types: Mapping[str, Any], parameters: Sequence[str], descriptors: frozenset[str]
) -> dict[str, int | None]:
    """Return the value of each parameter of the compiled code; None for floats, descriptors and what is not known.

    A tensor's address is replaced by one of its own that is aligned as much.

    Args:
        types: Triton's type of each argument, by name.
        parameters: names of the parameters in the compiled code, in order.
        descriptors: those that are passed as a tensor descriptor.
    """
    given = {**dict(zip(launch.fn.arg_names, launch.args, strict=False)), **launch.kwargs}
    values: list[int | None] = []
    for number, (name, kind) in enumerate(types.items()):
        if kind == "constexpr":
            continue
        if str(kind).startswith("tensordesc"):
            if len(values) >= len(parameters) or parameters[len(values)] not in descriptors:
                break  # without such instructions it is passed as a pointer, sizes and flags
            values += _described(given.get(name))
        else:
            values.append(_value(given.get(name), number))
    return dict(zip(parameters, values, strict=False))


def _described(descriptor: Any) -> list[int | None]:
    """Return a descriptor's own parameter, its sizes and its strides."""
    return [None, *map(int, descriptor.shape), *map(int, descriptor.strides)]


def _value(argument: Any, number: int) -> int | None:
    if hasattr(argument, "data_ptr"):
        return (number + 1) * _APART + int(argument.data_ptr()) % (16 * ALIGNMENT)
    return int(argument) if isinstance(argument, int) else None
