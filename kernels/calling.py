"""Calls of ops on tensors: the building blocks of an op's `call.py`.

A call has a hot path and a cold path. The hot path is the op's public function: it describes its tensors by a key
(shapes, strides, dtypes, device, alignment, negative bits), finds the launch that is prepared for such tensors, and
runs it unless `out` may overlap an input. It is written out in straight lines, since each function call costs the host
0.1 us or more of some 10 us a launch. The cold path is shared: `prepare` checks the tensors and prepares the launch, as
`tuner.launching` has installed it.

An op's `call.py` ends in `CALL = OpCall(...)`; `tuner.ops` finds it there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd import forward_ad

from tuner.errors import UsageError
from tuner.kernels.overlap import extent, shares_memory
from tuner.kernels.spec import Kernel, Problem, dtype_name

Tensors = Mapping[str, Tensor]
"""Tensors by operand name, in the order in which the op's function takes them."""
Pointers = tuple[int, ...]
"""Addresses of the tensors, in the same order."""
PreparedLaunch = Callable[[Pointers], object]
"""Launches on the current stream, given the addresses."""
Prepared = tuple[Any, ...]
"""A `PreparedLaunch` and extents in bytes: minus that of `out`, then that of each input, in their order.

An input shares no memory with `out` unless `-extent(out) < out_at - input_at < extent(input)`.
"""

PLAIN = {Tensor, torch.nn.Parameter}
"""Tensor types whose elements are in memory. Other types, such as the fake tensors of tracing, go through torch."""
NOT_STRIDED = AttributeError, TypeError, RuntimeError
"""Errors of reading shape, strides and address of what is no dense tensor; `check_strided` then says what it is."""
is_tracing = torch.compiler.is_dynamo_compiling
is_recording = torch.is_grad_enabled

prepared: dict[object, Prepared] = {}
"""Prepared launches by key, or by key and distances if `out` is close to an input. `tuner.launching` adds and drops
them."""


@dataclass(frozen=True)
class OpCall:
    """Call of an op's function: the tensors it takes, and the problem they are."""

    kernel: Kernel
    function: Callable[..., Tensor]
    """The public function, which writes to its argument `out`; `tuner.ops` has it under the op's name."""
    out_shape: Callable[[Tensors], tuple[int, ...]]
    """Shape of `out`. Raises UsageError if the inputs' shapes do not fit each other."""
    values: Callable[[Tensors], Mapping[str, object]]
    """Dims, dtype and attributes of the problem, as far as the tensors decide them."""
    own_dtypes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Dtypes of the operands that do not share the first operand's dtype."""
    any_rank: frozenset[str] = frozenset()
    """Operands that need not be matrices; `out_shape` checks their shapes."""
    in_place: bool = False
    """True if `out` may be an input."""
    accepts: Callable[[str, Tensor], bool] = lambda name, tensor: rows_without_gaps(tensor)
    """Test of an operand's strides. If the kernel does not take them, a copy stands in for it."""
    laid_out: Callable[[str, Tensor], Tensor] = lambda name, tensor: tensor.contiguous()
    """A copy of an operand with strides that `accepts` accepts."""
    passed_as: Callable[[torch.dtype], torch.dtype] = lambda dtype: dtype
    """Dtype under which the kernel is given elements of a dtype; they are viewed, not converted."""
    takes: str = ""
    """Dtypes that the op takes, for its error message; empty: the kernel's dtypes."""
    write_empty: Callable[..., object] = lambda tensors, **attributes: tensors["out"].zero_()
    """Writes `out` if an input has no elements: zeros, which is the sum of nothing."""

    @property
    def op(self) -> str:
        return self.kernel.op

    def check(self, tensors: Tensors, **attributes: str) -> None:
        """Check shapes, dtypes, devices and attributes; tensors without memory are checked too.

        Raises:
            UsageError: they do not fit each other or the op.
        """
        check_strided(self.op, tensors)
        (first, one), *others = tensors.items()
        for name, tensor in tensors.items():
            if tensor.ndim != 2 and name not in self.any_rank:
                raise UsageError(
                    f"{self.op} takes matrices, and {name} has shape {shape(tensor)}; "
                    f"make it one, as in {name}.reshape(-1, {name}.shape[-1])"
                )
        for name, tensor in others:
            if tensor.dtype != one.dtype and name not in self.own_dtypes:
                raise UsageError(
                    f"{self.op} takes tensors of one dtype, and {first} is {one.dtype} but {name} is {tensor.dtype}; "
                    "convert one of them with .to()"
                )
            if tensor.device != one.device:
                raise UsageError(
                    f"{self.op} takes tensors on one device, and {first} is on {one.device} but {name} is on "
                    f"{tensor.device}; move one of them with .to()"
                )
        self._check_dtypes(first, one.dtype, tensors)
        for name, value in attributes.items():
            self._check_choice(name, value)
        expected = self.out_shape(tensors)
        if shape(tensors["out"]) != expected:
            raise UsageError(
                f"{self.op} writes to an out of shape {expected} here, not {shape(tensors['out'])}; "
                "omit out, and it is allocated"
            )

    def problem(self, tensors: Tensors, **attributes: str) -> Problem:
        """Return the problem that checked tensors are an instance of. None of them may be empty."""
        return self.kernel.signature.problem({**self.values(self.operands(tensors)), **attributes})

    def overlapped(self, tensors: Tensors) -> str | None:
        """Return the name of an input that shares memory with `out` and may not; None without one."""
        out = tensors["out"]
        for name, tensor in tensors.items():
            if name != "out" and not (self.in_place and same_place(tensor, out)) and shares_memory(tensor, out):
                return name
        return None

    def reaches(self, tensors: Tensors) -> tuple[int, ...]:
        """Return the extents of `Prepared`; 0 for an input that is `out` itself, if the op works in place."""
        out = tensors["out"]
        return (
            -extent(out),
            *(
                0 if self.in_place and same_place(tensor, out) else extent(tensor)
                for name, tensor in tensors.items()
                if name != "out"
            ),
        )

    def run_in_torch(self, tensors: Tensors, **attributes: str) -> None:
        """Call the op as torch's custom op of it does, on tensors of any type.

        `torch.compile` may pass as `out` what it also passes as an input, since it removes copies that a functional op
        does not need. The op then writes to a new tensor first.
        """
        plain = {name: tensor.as_subclass(Tensor) for name, tensor in tensors.items()}
        check_strided(self.op, plain)
        out = plain.pop("out")
        if self.overlapped({**plain, "out": out}) is None:
            self.function(**plain, **attributes, out=out)
        else:
            out.copy_(self.function(**plain, **attributes, out=torch.empty_like(out)))

    def operands(self, tensors: Tensors) -> Tensors:
        """Return the tensors under the dtypes that the kernel knows, in the same memory."""
        return {name: self._as_known(tensor) for name, tensor in tensors.items()}

    def _as_known(self, tensor: Tensor) -> Tensor:
        dtype = self.passed_as(tensor.dtype)
        return tensor if dtype == tensor.dtype else tensor.view(dtype)

    def _check_dtypes(self, first: str, dtype: torch.dtype, tensors: Tensors) -> None:
        known = self.kernel.signature.dtypes
        if short_name(self.passed_as(dtype)) not in known:
            raise UsageError(
                f"{self.op} takes {self.takes or ', '.join(known)}, and {first} is {dtype}; convert it with .to()"
            )
        for name, dtypes in self.own_dtypes.items():
            if short_name(tensors[name].dtype) not in dtypes:
                raise UsageError(
                    f"{self.op}'s {name} is {' or '.join(dtypes)}, not {tensors[name].dtype}; convert it with .to()"
                )

    def _check_choice(self, name: str, value: str) -> None:
        attributes = self.kernel.signature.attributes
        choices = next(attribute.choices for attribute in attributes if attribute.name == name)
        if choices is not None and value not in choices:
            raise UsageError(f"{self.op}'s {name} is one of {', '.join(map(str, choices))}, not {value!r}")


class Prepare(Protocol):
    """Prepares the launch of a call on tensors like these, and keeps it in `prepared` under the key."""

    def __call__(
        self, call: OpCall, key: object, tensors: Tensors, gradient: bool, attributes: Mapping[str, str]
    ) -> Prepared: ...


_installed: list[Prepare] = []


def install(prepare: Prepare) -> None:
    """Let `prepare` prepare launches; it replaces the one before."""
    _installed[:] = [prepare]


def prepare(call: OpCall, key: object, tensors: Tensors, gradient: bool, **attributes: str) -> Prepared:
    """Return the launch of a call on tensors like these, for tensors whose key is not in `prepared`.

    Where `out` is close to an input, as two blocks of one matrix are, the launch is kept for these distances.

    Raises:
        UsageError: the tensors do not fit, a gradient is asked for, or `tuner.ops` was not imported.
    """
    if not _installed:
        raise UsageError(f"{call.op} is launched by tuner.ops, which is not imported; call tuner.ops.{call.op}")
    if key in prepared:
        _, before, *after = prepared[key]
        out_at = tensors["out"].data_ptr()
        distances = (out_at - tensor.data_ptr() for name, tensor in tensors.items() if name != "out")
        key = (key, *(apart if before < apart < end else None for apart, end in zip(distances, after, strict=True)))
        if key in prepared:
            return prepared[key]
    return _installed[0](call, key, tensors, gradient, attributes)


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


def check_strided(op: str, tensors: Mapping[str, object]) -> None:
    """Raise UsageError unless these are tensors whose elements lie in memory at strides, each a plain number."""
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise UsageError(f"{op} takes tensors, and {name} is {kind_of(tensor)}; convert it with torch.as_tensor()")
        if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            raise UsageError(
                f"{op} is not known to torch.func, and {name} is inside one of its transforms; "
                "call the op outside of it, or call torch instead"
            )
        if tensor.is_nested or tensor.layout is not torch.strided:
            kind = "nested" if tensor.is_nested else str(tensor.layout).removeprefix("torch.").removeprefix("_")
            raise UsageError(
                f"{op} takes dense tensors, and {name} is {kind}; make it one with .to_dense(), or pad a nested one"
            )
        if tensor.is_quantized:
            raise UsageError(f"{op} takes plain numbers, and {name} is quantized; convert it with .dequantize()")


def kind_of(value: object) -> str:
    """Return the type of a value, with its module unless it is one of Python's, as messages show it."""
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def same_place(x: Tensor, y: Tensor) -> bool:
    """Return whether elements of the same index have the same address in tensors of one shape."""
    return x.data_ptr() == y.data_ptr() and all(
        a == b for a, b, size in zip(x.stride(), y.stride(), x.shape, strict=True) if size > 1
    )


def rows_without_gaps(tensor: Tensor) -> bool:
    """Return whether the elements of each row of a matrix are neighbours in memory."""
    return bool(tensor.is_contiguous() or tensor.shape[1] == 1 or tensor.stride(1) == 1)


def shape(tensor: Tensor) -> tuple[int, ...]:
    """Return the shape as a plain tuple, as messages show it."""
    return tuple(tensor.shape)


def short_name(dtype: torch.dtype) -> str | None:
    """Return the short name of a dtype (`bf16`), or None for a dtype that no kernel has."""
    try:
        return dtype_name(dtype)
    except UsageError:
        return None
