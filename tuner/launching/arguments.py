"""From the addresses of tensors to the arguments of a compiled kernel, with all that never changes settled before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from operator import itemgetter
from typing import Any

import triton
from triton.backends.nvidia.driver import make_tensordesc_arg
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as GluonDescriptor
from triton.tools.tensor_descriptor import TensorDescriptor

from tuner.errors import UsageError
from tuner.kernels.calling import Pointers
from tuner.kernels.spec import Launch

Arguments = Callable[[Pointers], tuple[Any, ...]]

TRITON = tuple(map(int, triton.__version__.split(".")[:2]))
DESCRIPTORS = (TensorDescriptor, GluonDescriptor)

_MOST = 1024
"""Sets of addresses whose descriptors are kept of one launch; then the oldest goes."""


def arranged(launch: Launch, tensors: Sequence[Any]) -> Arguments:
    """What makes a launch's arguments from the addresses of its tensors, in the order of `tensors`.

    A tensor becomes its address, which Triton then need not ask for.

    Raises:
        UsageError: the launch has a tensor that is none of these, or several in a tuple.
    """
    order: list[int] = []
    constants: list[Any] = []
    described: dict[int, tuple[Any, int]] = {}
    for place, value in enumerate(_bound(launch)):
        if hasattr(value, "data_ptr"):
            order.append(_which(value, tensors))
            continue
        if isinstance(value, tuple | list) and any(hasattr(item, "data_ptr") for item in value):
            raise UsageError("a kernel that is prepared takes its tensors one by one, not in a tuple; name each")
        if isinstance(value, DESCRIPTORS):
            described[place] = value, _which(value.base, tensors)
        order.append(len(tensors) + len(constants))
        constants.append(None if place in described else value)  # or the tensor that it describes would live on
    pick, fixed = _picker(order), tuple(constants)
    if described:
        return _describing(lambda pointers: pick(pointers + fixed), described)
    return lambda pointers: pick(pointers + fixed)


def expanded(arguments: Arguments, compiled: Any) -> Arguments:
    """With descriptors encoded as the card reads them. That is kept, since they hold addresses, and those recur."""
    kept: dict[Pointers, tuple[Any, ...]] = {}

    def expand(pointers: Pointers) -> tuple[Any, ...]:
        values = kept.get(pointers)
        if values is None:
            values = _encoded(arguments(pointers), compiled)
            make_room(kept, _MOST)
            kept[pointers] = values
        return values

    return expand


def make_room(kept: dict[Any, Any], most: int) -> None:
    """Drops the oldest where there are as many as there may be."""
    if len(kept) >= most:
        kept.pop(list(kept)[0], None)  # noqa: RUF015  in one step: other threads may add and drop


def _picker(order: Sequence[int]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """Picks these items; `itemgetter` of one makes no tuple."""
    return itemgetter(*order) if len(order) > 1 else lambda items: (items[order[0]],)


def _bound(launch: Launch) -> tuple[Any, ...]:
    """The kernel's parameters in its own order, as Triton binds them; of options like `num_warps` only its own."""
    parameters = signature(launch.fn.fn)
    own = {name: value for name, value in launch.kwargs.items() if name in parameters.parameters}
    bound = parameters.bind(*launch.args, **own)
    bound.apply_defaults()
    return tuple(bound.arguments.values())


def _which(value: Any, tensors: Sequence[Any]) -> int:
    """The tensor that an argument is, or is a view of from its first element on."""
    same = [place for place, tensor in enumerate(tensors) if value is tensor]
    same += [place for place, tensor in enumerate(tensors) if value.data_ptr() == tensor.data_ptr()]
    if not same:
        raise UsageError(
            "a kernel is launched with its operands and its workspace, from their first element on, "
            f"not with another tensor of shape {tuple(value.shape)}; name it in `workspace`"
        )
    return same[0]


@dataclass(frozen=True)
class _Address:
    """Stands for the tensor that a descriptor describes."""

    address: int
    dtype: Any

    def data_ptr(self) -> int:
        """Its first element's."""
        return self.address


def _describing(arguments: Arguments, described: Mapping[int, tuple[Any, int]]) -> Arguments:
    """The arguments with descriptors in their places, of tensors at these addresses."""
    blank = {
        place: (replace(descriptor, base=_Address(0, descriptor.base.dtype)), tensor)
        for place, (descriptor, tensor) in described.items()
    }

    def describe(pointers: Pointers) -> tuple[Any, ...]:
        values = list(arguments(pointers))
        for place, (descriptor, tensor) in blank.items():
            values[place] = replace(descriptor, base=_Address(pointers[tensor], descriptor.base.dtype))
        return tuple(values)

    return describe


def _encoded(values: tuple[Any, ...], compiled: Any) -> tuple[Any, ...]:
    """As Triton's launcher expands descriptors; where the card has no use for them, into addresses and strides."""
    metas = iter(getattr(compiled.metadata, "tensordesc_meta", None) or ())
    more = () if TRITON < (3, 8) else ((),)  # what else is launched with, which no card of NVIDIA's is told
    encoded: list[Any] = []
    for value in values:
        if isinstance(value, DESCRIPTORS):
            encoded += make_tensordesc_arg(value, next(metas, None), *more)
        else:
            encoded.append(value)
    return tuple(value.address if isinstance(value, _Address) else value for value in encoded)
