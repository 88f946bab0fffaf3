"""The kernel of a captured call, made of the call and its function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from tuner.captured import reference as references
from tuner.captured.autotuned import Autotuned, taken_apart
from tuner.captured.binding import launch_of, missing_grid
from tuner.captured.call import CapturedCall
from tuner.captured.functions import load
from tuner.captured.hashes import definition_of, source_of
from tuner.captured.inputs import operands_of
from tuner.captured.problem import problem_of_call, signature_of_call
from tuner.errors import UsageError
from tuner.kernels.spec import Kernel, Launch, Limits, Operand, Problem, Value

_ROUNDINGS = {"fp16": 2.0**-10, "bf16": 2.0**-7, "fp32": 2.0**-10}
"""Relative rounding errors that a kernel may have by the dtype of a tensor: its epsilon, and that of tf32 for fp32."""


@dataclass(frozen=True, eq=False)
class CapturedKernel(Kernel):
    """The kernel of a captured call. It has one problem, that of the call."""

    call: CapturedCall = field(kw_only=True)
    autotuned: Autotuned = field(kw_only=True)
    document: str = field(default="", kw_only=True)
    """Path of the document that it was read from, from which other processes load it; empty if there is none."""

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, CapturedKernel)
            and (self.call, self.parts, self.document) == (other.call, other.parts, other.document)
            and self.autotuned.jit is other.autotuned.jit
        )

    __hash__ = Kernel.__hash__

    @cached_property
    def problem(self) -> Problem:
        """The problem of the call."""
        return problem_of_call(self.call)

    @cached_property
    def source(self) -> str:
        """Source hash: of the jit function, its heuristics and hooks, and the functions that they reach."""
        return source_of(self.autotuned)

    @cached_property
    def definition(self) -> str:
        """Hash of the author's reference; empty if configs are compared with each other."""
        reference = self.autotuned.reference
        return "" if reference is None else definition_of(reference)


def kernel_of(call: CapturedCall, *, widen: bool = False, function: Any = None, document: str = "") -> CapturedKernel:
    """Return the kernel of a captured call.

    Args:
        widen: whether a search may combine all choices that the configs name and their neighbours; otherwise it has the
            listed configs.
        function: the autotuned function; None loads the one that the call names.
        document: path of the call's document, if it was read from one.

    Raises:
        UnknownName: the function's file or its name is not there.
        KernelFault: the function cannot be loaded or is no function of Triton's, or a kernel cannot have the names or
            values of the call.
    """
    autotuned = taken_apart(load(call.function) if function is None else function)
    parts = _Parts(call, autotuned)
    return CapturedKernel(
        signature=signature_of_call(call),
        operands=parts.operands,
        launch=parts.launch,
        reference=parts.reference,
        default=parts.default,
        valid=partial(_has_grid, call),
        parts=({},) if widen else _listed(call),
        rounding=parts.rounding,
        finite_only=True,
        call=call,
        autotuned=autotuned,
        document=document,
    )


def _listed(call: CapturedCall) -> tuple[Mapping[str, tuple[Value, ...]], ...]:
    """Return a part for each listed config."""
    return tuple({name: (value,) for name, value in config.items()} for config in call.configs)


def _has_grid(call: CapturedCall, problem: Problem, config: Mapping[str, Value], limits: Limits) -> bool | str:
    """Return True if the grid of a config was captured or none was, else the reason against the config."""
    known = not call.grids.sizes or call.grids.of(config) is not None
    return True if known else missing_grid(call, config)


class _Parts:
    """Functions of a captured call's kernel, which become fields of `Kernel`."""

    def __init__(self, call: CapturedCall, autotuned: Autotuned) -> None:
        self._call, self._autotuned = call, autotuned

    @cached_property
    def _operands(self) -> dict[str, Operand]:
        return operands_of(self._call)

    @cached_property
    def _problem(self) -> str:
        return problem_of_call(self._call).text

    def operands(self, problem: Problem) -> dict[str, Operand]:
        """Return the tensors of the call."""
        if problem.text != self._problem:
            raise UsageError(f"a captured call has one problem, {self._problem}, not {problem.text}; capture that one")
        return self._operands

    def launch(self, problem: Problem, config: Mapping[str, Value], tensors: Mapping[str, Any]) -> tuple[Launch, ...]:
        """Return the one launch of a config."""
        return (launch_of(self._call, self._autotuned, config, tensors),)

    def reference(self, problem: Problem, tensors: Mapping[str, Any], rows: slice) -> dict[str, Any]:
        """Return rows of the right contents of the written tensors."""
        by = references.by_agreement if self._autotuned.reference is None else references.by_author
        found = by(self._call, self._autotuned, self._operands, tensors)
        return {name: value[rows] if getattr(value, "ndim", 0) else value for name, value in found.items()}

    def default(self, problem: Problem, limits: Limits) -> Mapping[str, Value]:
        """Return the first listed config."""
        return self._call.configs[0]

    def rounding(self, problem: Problem) -> float:
        """Return the coarsest rounding error that intermediate results may have by the dtypes of the tensors."""
        return max((_ROUNDINGS.get(operand.dtype, 0.0) for operand in self._operands.values()), default=0.0)
