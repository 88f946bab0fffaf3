"""Calls of ops on tensors: the building blocks of an op's `call.py`.

A call has a hot path and a cold path. The hot path describes its tensors by a key (shapes, strides, dtypes, device,
alignment, negative bits), finds the launch that is prepared for such tensors, and runs it unless a written tensor may
overlap another; `hot_path.py` generates it. The cold path, `prepare`, checks the tensors and prepares the launch, as
`tuner.launching` has installed it.

An op's `call.py` ends in `CALL = OpCall(...)` and `in_torch(CALL)`; `tuner.ops` finds it there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd import forward_ad

from tuner.errors import UsageError
from tuner.kernels.held import hold
from tuner.kernels.hot_path import generated
from tuner.kernels.op_call import (
    OpCall,
    Pairs,
    Pointers,
    Tensors,
    check_matrices,
    check_strided,
    checked_scalars,
    is_on_host,
    kind_of,
    rows_without_gaps,
    same_place,
    shape,
    short_name,
)

__all__ = [
    "NOT_STRIDED",
    "PLAIN",
    "OpCall",
    "Pairs",
    "Pointers",
    "Prepare",
    "Prepared",
    "PreparedLaunch",
    "Tensors",
    "apart",
    "check_matrices",
    "check_strided",
    "checked_scalars",
    "empty",
    "empty_like",
    "given",
    "hold_pinned",
    "in_torch",
    "install",
    "is_on_host",
    "is_recording",
    "is_tracing",
    "kind_of",
    "prepare",
    "prepared",
    "refuse_gradient",
    "refuse_tangents",
    "rows_without_gaps",
    "run",
    "run_in_torch",
    "same_place",
    "shape",
    "short_name",
    "traced",
]

PreparedLaunch = Callable[[Pointers], object]
"""Launches on the current stream, given the addresses."""
Prepared = tuple[PreparedLaunch, Pairs]
"""A launch, and the pairs of tensors that must not overlap."""
Scalars = Mapping[str, float]

PLAIN = {Tensor, torch.nn.Parameter}
"""Tensor types whose elements are in memory. Other types, such as the fake tensors of tracing, go through torch."""
NOT_STRIDED = AttributeError, TypeError, RuntimeError
"""Errors of reading shape, strides or address if a value is no dense tensor; `check_strided` then says what it is."""
NONE: Mapping[str, Any] = MappingProxyType({})
is_tracing = torch.compiler.is_dynamo_compiling
is_recording = torch.is_grad_enabled
watchers = torch._C._len_torch_dispatch_stack
"""Number of modes that watch torch's ops, such as one that traces a graph or counts operations."""

prepared: dict[object, Prepared] = {}
"""Prepared launches by key, or by key and distances if a written tensor is close to another. `tuner.launching` adds and
drops them."""
_SCHEMA_TYPES = {str: "str", bool: "bool", int: "int"}
"""Types of attributes in the schema of a custom op."""


def given(**tensors: Tensor | None) -> Tensors:
    """Return the tensors that are not None, in their order."""
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}


def empty_like(op: str, x: Tensor, name: str = "x") -> Tensor:
    """Return a tensor of the shape and dtype of `x`, in its order of dims. Raises UsageError unless `x` is dense."""
    try:
        return torch.empty_like(x)
    except NOT_STRIDED:
        check_strided(op, {name: x})
        raise


def empty(
    op: str,
    x: Tensor,
    shape: Callable[[], tuple[int, ...]],
    dtype: torch.dtype | None = None,
    name: str = "x",
    beside: Tensors = NONE,
) -> Tensor:
    """Return a contiguous tensor on the device of `x`, of its dtype if none is given.

    Args:
        shape: returns the shape, which depends on `x`.
        name: name of `x` in messages.
        beside: other tensors that the shape depends on.

    Raises:
        UsageError: one of them is not a dense tensor.
    """
    try:
        return torch.empty(shape(), dtype=dtype or x.dtype, device=x.device)
    except NOT_STRIDED:
        check_strided(op, {name: x, **beside})
        raise


def run(call: OpCall, tensors: Tensors, attributes: Mapping[str, Any] = NONE, scalars: Scalars = NONE) -> None:
    """Launch an op on tensors, named as `call.takes_tensors` names them and in that order.

    Raises:
        UsageError: the tensors do not fit the op, are not on a GPU, or a gradient is asked for.
    """
    if is_tracing():
        gradient = is_recording() and any(tensor.requires_grad for tensor in tensors.values())
        through_torch(call, tensors, attributes, scalars, gradient)
        return
    names = *tensors, *attributes, *scalars
    hot = call.hot_paths.get(names)
    if hot is None:
        arguments, has_setting = (*attributes, *scalars), call.setting is not None
        hot = call.hot_paths[names] = generated(tuple(tensors), arguments, globals(), has_setting=has_setting)
    hot(call, tensors, attributes, scalars)
    if call.on_host:
        hold_pinned(tensors, call.on_host, next(tensors[name] for name in tensors if name in call.written).device)


def hold_pinned(tensors: Tensors, names: Collection[str], device: torch.device) -> None:
    """Keep those of the named tensors that are pinned until the work now on the current stream has ended."""
    for name, tensor in tensors.items():
        if name in names and type(tensor) in PLAIN and tensor.is_cpu and not tensor.is_neg() and tensor.is_pinned():
            hold(tensor, device)


def through_torch(
    call: OpCall, tensors: Tensors, attributes: Mapping[str, Any], scalars: Scalars, gradient: bool
) -> None:
    """Call the custom op on tensors of other types, such as the fake tensors of tracing."""
    refuse_gradient(gradient)
    traced(call, tensors, attributes, scalars)


def explain(call: OpCall, tensors: Tensors, attributes: Mapping[str, Any], scalars: Scalars) -> None:
    """Raise UsageError if tensors are not dense, or if attributes or scalars are of another type, such as a list."""
    check_strided(call.op, tensors)
    call.check(tensors, **attributes)
    checked_scalars(call.kernel, scalars)


def apart(pairs: Pairs, at: Pointers) -> bool:
    """Return whether no written tensor may overlap another, with the tensors at these addresses."""
    for written, other, before, after in pairs:  # noqa: SIM110  a generator costs 0.3 us
        if before < at[written] - at[other] < after:
            return False
    return True


class Prepare(Protocol):
    """Prepares the launch of a call on tensors like these, and keeps it in `prepared` under the key."""

    def __call__(
        self,
        call: OpCall,
        key: object,
        tensors: Tensors,
        gradient: bool,
        attributes: Mapping[str, Any],
        scalars: Scalars,
    ) -> Prepared: ...


_installed: list[Prepare] = []


def install(prepare: Prepare) -> None:
    """Set the function that prepares launches."""
    _installed[:] = [prepare]


def prepare(
    call: OpCall,
    key: object,
    tensors: Tensors,
    gradient: bool,
    attributes: Mapping[str, Any] = NONE,
    scalars: Scalars = NONE,
) -> Prepared:
    """Return the launch of a call on tensors like these, for tensors whose key is not in `prepared`.

    If a written tensor is close to another, as two blocks of one matrix are, the launch is kept for these distances.

    Raises:
        UsageError: the tensors do not fit, a gradient is asked for, or `tuner.ops` was not imported.
    """
    if not _installed:
        raise UsageError(f"{call.op} is launched by tuner.ops, which is not imported; call tuner.ops.{call.op}")
    if (found := prepared.get(key)) is not None:  # read once, since a refresh in another thread may drop it
        at = [tensor.data_ptr() for tensor in tensors.values()]
        distances = [(at[written] - at[other], before, after) for written, other, before, after in found[1]]
        key = (key, *(apart if before < apart < after else None for apart, before, after in distances))
        if (found := prepared.get(key)) is not None:
            return found
    return _installed[0](call, key, tensors, gradient, attributes, scalars)


def in_torch(call: OpCall) -> None:
    """Register `tuner::OP`, the custom op that `torch.compile` traces in place of the call."""
    parts, alias = [], iter("abcdefghij")
    for taken in call.taken:
        kind = f"Tensor({next(alias)}!)" if taken.is_written else "Tensor"
        parts.append(f"{kind}{'?' if taken.is_optional else ''} {taken.name}")
    parts += [f"{_SCHEMA_TYPES[type(default)]} {name}" for name, default in call.takes_attributes.items()]
    parts += [f"float {name}" for name in call.kernel.scalars]

    def named(values: tuple[Any, ...]) -> tuple[Tensors, dict[str, Any], dict[str, float]]:
        tensors = dict(zip([taken.name for taken in call.taken], values, strict=False))
        options = iter(values[len(call.taken) :])
        attributes = {name: next(options) for name in call.takes_attributes}
        return given(**tensors), attributes, {name: next(options) for name in call.kernel.scalars}

    def run_it(*values: Any) -> None:
        run_in_torch(call, *named(values))

    def check_it(*values: Any) -> None:
        tensors, attributes, _ = named(values)
        call.check(tensors, **attributes)

    made = torch.library.custom_op(
        f"tuner::{call.op}", run_it, mutates_args=sorted(call.written), schema=f"({', '.join(parts)}) -> ()"
    )
    made.register_fake(check_it)


def run_in_torch(call: OpCall, tensors: Tensors, attributes: Mapping[str, Any] = NONE, scalars: Scalars = NONE) -> None:
    """Run an op as its custom op in torch does, on tensors of any type.

    `torch.compile` may pass as an output what it also passes as an input, since it removes copies that a functional op
    does not need. The op then writes to a new tensor first.
    """
    plain = {name: tensor.as_subclass(Tensor) for name, tensor in tensors.items()}
    check_strided(call.op, plain)
    fresh: dict[str, Tensor] = {}
    while (pair := call.overlapped({**plain, **fresh})) is not None and not call.written.issuperset(pair):
        fresh[pair[0]] = torch.empty_like(plain[pair[0]])
    run(call, {**plain, **fresh}, attributes, scalars)
    for name, tensor in fresh.items():
        plain[name].copy_(tensor)


def traced(call: OpCall, tensors: Tensors, attributes: Mapping[str, Any], scalars: Scalars) -> None:
    """Call the custom op of an op, which torch traces."""
    values = [tensors.get(taken.name) for taken in call.taken]
    values += [attributes.get(name, default) for name, default in call.takes_attributes.items()]
    values += [scalars.get(name, value) for name, value in call.kernel.scalars.items()]
    getattr(torch.ops.tuner, call.op).default(*values)


def refuse_gradient(gradient: bool, caller: str = "tuner.ops") -> None:
    """Raise UsageError if autograd would record the call."""
    if gradient:
        raise UsageError(
            f"{caller} has no backward pass, and a tensor requires a gradient; "
            "call it under torch.no_grad(), or detach() the tensor"
        )


def refuse_tangents(op: str, tensors: Tensors) -> None:
    """Raise UsageError if a tensor is a dual of forward-mode autograd, whose tangent the call would lose."""
    for name, tensor in tensors.items():
        if forward_ad.unpack_dual(tensor).tangent is not None:
            raise UsageError(
                f"{op} has no forward derivative, and {name} is a dual tensor of torch.autograd.forward_ad; "
                "call torch instead"
            )
