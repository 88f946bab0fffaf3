"""Calls of ops on tensors: the building blocks of an op's `call.py`.

A call has a hot path and a cold path. The hot path describes its tensors by a key (shapes, strides, dtypes, device,
alignment, negative bits), finds the launch that is prepared for such tensors, and runs it unless a written tensor may
overlap another; `hot_path.py` generates it. The cold path, `prepare`, checks the tensors and prepares the launch, as
`tuner.launching` has installed it.

An op's `call.py` ends in `CALL = OpCall(...)` and `launch = in_torch(CALL)`; `tuner.ops` finds the first there, and the
op's function calls the second.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad

from tuner.errors import UsageError
from tuner.kernels.held import hold
from tuner.kernels.hot_path import generated
from tuner.kernels.op_call import OpCall, Pointers
from tuner.kernels.tensors import (
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
    "Pointers",
    "Prepare",
    "Prepared",
    "PreparedLaunch",
    "Tensors",
    "cached",
    "check_matrices",
    "check_strided",
    "checked_scalars",
    "empty",
    "empty_like",
    "hold_pinned",
    "in_torch",
    "install",
    "is_on_host",
    "is_recording",
    "is_tracing",
    "kind_of",
    "launcher",
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
]

PreparedLaunch = Callable[[Pointers], object]
"""Launches on the current stream, given the addresses."""
Prepared = tuple[Any, ...]
"""A `PreparedLaunch`, followed by `OpCall.bounds`."""
Scalars = Mapping[str, float]
_Result = TypeVar("_Result")

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


def empty_like(op: str, x: Tensor, name: str = "x") -> Tensor:
    """Return a tensor of the shape and dtype of `x`, in its order of dims. Raises UsageError unless `x` is dense."""
    try:
        return torch.empty_like(x)
    except NOT_STRIDED:
        check_strided(op, {name: x})
        raise


def empty(
    op: str, shape: Callable[..., tuple[int, ...]], dtype: torch.dtype | None = None, **tensors: Tensor
) -> Tensor:
    """Return a contiguous tensor on the device of the first of these tensors, of its dtype if none is given.

    Args:
        shape: returns the shape, given the tensors.

    Raises:
        UsageError: one of the tensors is not a dense tensor.
    """
    try:
        first = next(iter(tensors.values()))
        return torch.empty(shape(*tensors.values()), dtype=dtype or first.dtype, device=first.device)
    except NOT_STRIDED:
        check_strided(op, tensors)
        raise


def cached(function: Callable[..., _Result]) -> Callable[..., _Result]:
    """Return a function that keeps results by their arguments, which are told apart by type too: 1 from True.

    Items of tuples are not, so equal ones must have equal results. It keeps none while torch traces, nor of arguments
    without a hash, such as lists and sizes that are not known.
    """
    kept = lru_cache(maxsize=4096, typed=True)(function)

    def found(*values: Any) -> _Result:
        try:
            if not is_tracing():
                return kept(*values)
        except TypeError:
            pass
        return function(*values)

    return found


def launcher(call: OpCall) -> Callable[..., None]:
    """Return the function that launches an op on the values of `OpCall.in_order`.

    It raises UsageError if the tensors do not fit the op, are not on a GPU, or a gradient is asked for.
    """
    if not call.generated:
        call.generated.append(generated(call, globals()))
    return call.generated[0]


def run(call: OpCall, tensors: Tensors, attributes: Mapping[str, Any] = NONE, scalars: Scalars = NONE) -> None:
    """Launch an op on tensors by name. Raises UsageError as `launcher`."""
    launcher(call)(*call.in_order(tensors, attributes, scalars))


def hold_pinned(tensors: Tensors, names: Collection[str], device: torch.device) -> None:
    """Keep those of the named tensors that are pinned until the work now on the current stream has ended."""
    for name, tensor in tensors.items():
        if name in names and type(tensor) in PLAIN and tensor.is_cpu and not tensor.is_neg() and tensor.is_pinned():
            hold(tensor, device)


def through_torch(call: OpCall, *values: Any) -> None:
    """Call the custom op of an op, on tensors of other types too, such as the fake tensors of tracing."""
    if is_recording():
        refuse_gradient(any(tensor.requires_grad for tensor in values[: len(call.taken)] if tensor is not None))
    if call.kernel.scalars and is_tracing():
        values = _traced(call, values)
    getattr(torch.ops.tuner, call.op).default(*values)


def _traced(call: OpCall, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the values of a custom op in a graph, with scalars that vary in tensors after them.

    torch compiles a graph again for each number that it passes to a custom op, but not for the numbers of a tensor.
    """
    from torch.fx.experimental.symbolic_shapes import has_static_value  # takes long to import

    first = len(values) - len(call.kernel.scalars)
    scalars = values[first:]
    varies = [isinstance(scalar, float) and not has_static_value(scalar) for scalar in scalars]
    if not any(varies):
        return values
    zero, pairs = torch.zeros((), dtype=torch.float64, device="cpu"), list(zip(scalars, varies, strict=True))
    fixed = [0.0 if vary else scalar for scalar, vary in pairs]
    return *values[:first], *fixed, *[zero + scalar if vary else None for scalar, vary in pairs]


def explain(call: OpCall, *values: Any) -> None:
    """Raise UsageError if tensors are not dense, or if attributes or scalars are of another type, such as a list."""
    tensors, attributes, scalars = call.named(*values)
    check_strided(call.op, tensors)
    call.check(tensors, **attributes)
    checked_scalars(call.kernel, scalars)


class Prepare(Protocol):
    """Prepares the launch of a call on tensors like these, and keeps it in `prepared` under the key."""

    def __call__(
        self, call: OpCall, key: object, tensors: Tensors, attributes: Mapping[str, Any], scalars: Scalars
    ) -> Prepared: ...


_installed: list[Prepare] = []


def install(prepare: Prepare) -> None:
    """Set the function that prepares launches."""
    _installed[:] = [prepare]


def prepare(call: OpCall, key: object, *values: Any) -> Prepared:
    """Return the launch of a call on tensors like these, for tensors whose key is not in `prepared`.

    If a written tensor is close to another, as two blocks of one matrix are, the launch is kept for these distances.

    Raises:
        UsageError: the tensors do not fit, or `tuner.ops` was not imported.
    """
    if not _installed:
        raise UsageError(f"{call.op} is launched by tuner.ops, which is not imported; call tuner.ops.{call.op}")
    tensors, attributes, scalars = call.named(*values)
    if (found := prepared.get(key)) is not None:  # read once, since a refresh in another thread may drop it
        at = {name: tensor.data_ptr() for name, tensor in tensors.items()}
        distances = [at[name] - at[other] for name, other in call.pairs(tensors)]
        near = zip(distances, found[1::2], found[2::2], strict=True)
        key = (key, *(distance if before < distance < after else None for distance, before, after in near))
        if (found := prepared.get(key)) is not None:
            return found
    return _installed[0](call, key, tensors, attributes, scalars)


def in_torch(call: OpCall) -> Callable[..., None]:
    """Register `tuner::OP`, the custom op that `torch.compile` traces in place of the call, and return `launcher`."""
    parts, alias = [], iter("abcdefghij")
    for taken in call.taken:
        kind = f"Tensor({next(alias)}!)" if taken.is_written else "Tensor"
        parts.append(f"{kind}{'?' if taken.is_optional else ''} {taken.name}")
    parts += [f"{_SCHEMA_TYPES[type(default)]} {name}" for name, default in call.takes_attributes.items()]
    parts += [f"Scalar {name}" for name in call.kernel.scalars]
    parts += [f"Tensor? {name}_at=None" for name in call.kernel.scalars]

    def run_it(*values: Any) -> None:
        tensors, attributes, scalars = call.named(*values)
        at = values[len(call.taken) + len(attributes) + len(scalars) :]  # torch leaves out trailing defaults
        scalars |= {name: x.item() for name, x in zip(scalars, at, strict=False) if x is not None}
        run_in_torch(call, tensors, attributes, scalars)

    def check_it(*values: Any) -> None:
        tensors, attributes, _ = call.named(*values)
        call.check(tensors, **attributes)

    made = torch.library.custom_op(
        f"tuner::{call.op}", run_it, mutates_args=sorted(call.written), schema=f"({', '.join(parts)}) -> ()"
    )
    made.register_fake(check_it)
    return launcher(call)


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
