"""Arguments of a compiled kernel from the addresses of its tensors; all other arguments are fixed in advance."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

import triton
from triton.backends.nvidia.driver import make_tensordesc_arg
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as GluonDescriptor
from triton.tools.tensor_descriptor import TensorDescriptor

from tuner.errors import UsageError
from tuner.kernels.calling import Pointers
from tuner.kernels.spec import Launch, Step

Arguments = Callable[[Pointers], tuple[Any, ...]]

TRITON = tuple(map(int, triton.__version__.split(".")[:2]))
DESCRIPTORS = (TensorDescriptor, GluonDescriptor)

MOST_DESCRIBED = 1024
"""Number of sets of addresses whose encoded descriptors are kept for one launch; then the oldest is dropped."""


class CannotPrepare(UsageError):
    """A launch cannot be prepared: it needs its tensors at each call, and not their addresses alone."""


def arranged(step: Step, tensors: Sequence[Any]) -> Arguments:
    """Return the function from addresses, in the order of `tensors`, to the arguments of a launch or a call.

    A tensor is passed as its address, so that Triton does not ask for it.

    Raises:
        CannotPrepare: the launch has a tensor that is not among these, or several in a tuple.
    """
    order: list[int] = []
    constants: list[Any] = []
    described: dict[int, tuple[Any, int]] = {}
    for place, value in enumerate(step.bound if isinstance(step, Launch) else step.args):
        if hasattr(value, "data_ptr"):
            order.append(_which(value, tensors))
            continue
        if isinstance(value, tuple | list) and any(hasattr(item, "data_ptr") for item in value):
            raise CannotPrepare("a prepared kernel takes its tensors one by one, not in a tuple; name each")
        if isinstance(value, DESCRIPTORS):
            described[place] = value, _which(value.base, tensors)
        order.append(len(tensors) + len(constants))
        constants.append(None if place in described else value)  # or the tensor that it describes would live on
    pick, fixed = _picker(order), tuple(constants)
    if described:
        return _describing(lambda pointers: pick(pointers + fixed), described)
    return lambda pointers: pick(pointers + fixed)


def expanded(arguments: Arguments, compiled: Any) -> Arguments:
    """Return arguments with descriptors encoded as the card reads them, kept by their addresses, which recur."""
    kept: dict[Pointers, tuple[Any, ...]] = {}

    def expand(pointers: Pointers) -> tuple[Any, ...]:
        values = kept.get(pointers)
        if values is None:
            values = _encoded(arguments(pointers), compiled)
            make_room(kept, MOST_DESCRIBED)
            kept[pointers] = values
        return values

    return expand


def make_room(kept: dict[Any, Any], most: int) -> None:
    """Drop the oldest item if there are `most` or more."""
    if len(kept) >= most:
        kept.pop(list(kept)[0], None)  # noqa: RUF015  one step, since other threads add and drop


def _picker(order: Sequence[int]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """Return a function that picks these items as a tuple, which `itemgetter` of one item does not."""
    return itemgetter(*order) if len(order) > 1 else lambda items: (items[order[0]],)


def _which(value: Any, tensors: Sequence[Any]) -> int:
    """Return the index of the tensor that an argument is, or is a view of from the first element on."""
    same = [place for place, tensor in enumerate(tensors) if value is tensor]
    same += [place for place, tensor in enumerate(tensors) if value.data_ptr() == tensor.data_ptr()]
    if not same:
        raise CannotPrepare(
            "a prepared kernel is launched with its operands and its workspace, from their first element on, "
            f"not with another tensor of shape {tuple(value.shape)}; name it in `workspace`"
        )
    return same[0]


@dataclass(frozen=True)
class _Address:
    """A stand-in for the tensor that a descriptor describes."""

    address: int
    dtype: Any

    def data_ptr(self) -> int:
        """Return the address of the first element."""
        return self.address


def _describing(arguments: Arguments, described: Mapping[int, tuple[Any, int]]) -> Arguments:
    """Return arguments with descriptors of the tensors at these addresses in their places."""
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
    """Return values with descriptors expanded as Triton's launcher does: encoded, or addresses and strides."""
    metas = iter(getattr(compiled.metadata, "tensordesc_meta", None) or ())
    more = () if TRITON < (3, 8) else ((),)  # another argument of the newer releases, unused on NVIDIA cards
    encoded: list[Any] = []
    for value in values:
        if isinstance(value, DESCRIPTORS):
            encoded += make_tensordesc_arg(value, next(metas, None), *more)
        else:
            encoded.append(value)
    return tuple(value.address if isinstance(value, _Address) else value for value in encoded)
