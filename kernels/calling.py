"""Calls of ops on tensors: the building blocks of an op's `call.py`.

A call has a hot path and a cold path. The hot path is the op's public function: it describes its tensors by a key
(shapes, strides, dtypes, device, alignment), finds the launch that is prepared for such tensors, and runs it. It is
written out in straight lines, since each function call costs the host 0.1 us or more of some 10 us a launch. The cold
path is shared: `prepare` checks the tensors and prepares the launch, as `tuner.launching` has installed it.

An op's `call.py` ends in `CALL = OpCall(...)`; `tuner.ops` finds it there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from tuner.errors import UsageError
from tuner.kernels.spec import Kernel, Problem, dtype_name

Tensors = Mapping[str, Tensor]
"""Tensors by operand name, in the order in which the op's function takes them."""
Pointers = tuple[int, ...]
"""Addresses of the tensors, in the same order."""
PreparedLaunch = Callable[[Pointers], object]
"""Launches on the current stream, given the addresses."""

PLAIN = {Tensor, torch.nn.Parameter}
"""Tensor types whose elements are in memory. Other types, such as the fake tensors of tracing, go through torch."""
is_tracing = torch.compiler.is_dynamo_compiling
is_recording = torch.is_grad_enabled

prepared: dict[object, PreparedLaunch] = {}
"""Prepared launches by key. `tuner.launching.calls` adds and drops them."""


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
        if value not in choices:
            raise UsageError(f"{self.op}'s {name} is one of {', '.join(map(str, choices))}, not {value!r}")


class Prepare(Protocol):
    """Prepares the launch of a call on tensors like these, and keeps it in `prepared` under the key."""

    def __call__(
        self, call: OpCall, key: object, tensors: Tensors, gradient: bool, attributes: Mapping[str, str]
    ) -> PreparedLaunch: ...


_installed: list[Prepare] = []


def install(prepare: Prepare) -> None:
    """Let `prepare` prepare launches; it replaces the one before."""
    _installed[:] = [prepare]


def prepare(call: OpCall, key: object, tensors: Tensors, gradient: bool, **attributes: str) -> PreparedLaunch:
    """Return the launch of a call on tensors like these, for tensors whose key is not in `prepared`.

    Raises:
        UsageError: the tensors do not fit, a gradient is asked for, or `tuner.ops` was not imported.
    """
    if not _installed:
        raise UsageError(f"{call.op} is launched by tuner.ops, which is not imported; call tuner.ops.{call.op}")
    return _installed[0](call, key, tensors, gradient, attributes)


def refuse_gradient(gradient: bool) -> None:
    """Raise UsageError if autograd would record the call."""
    if gradient:
        raise UsageError(
            "tuner.ops has no backward pass, and a tensor requires a gradient; "
            "call it under torch.no_grad(), or detach() the tensor"
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
