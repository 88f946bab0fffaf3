"""The call of an op on tensors: the tensors that it takes, the checks on them, and their problem."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from tuner.errors import UsageError
from tuner.kernels.fields import check_distinct
from tuner.kernels.overlap import extent, shares_memory
from tuner.kernels.spec import Kernel, Problem
from tuner.kernels.tensors import Tensors, check_one_device, check_strided, is_on_host, same_place, shape, short_name
from tuner.kernels.values import equal, listed

Pointers = tuple[int, ...]
"""Addresses of the tensors, in the same order."""


@dataclass(frozen=True)
class Taken:
    """A tensor that an op takes."""

    name: str
    is_optional: bool
    is_written: bool


@dataclass(frozen=True)
class OpCall:
    """Call of an op's function. Its callables get the attributes of the call as keywords."""

    kernel: Kernel
    function: Callable[..., Any]
    """The public function; `tuner.ops` has it under the op's name."""
    takes_tensors: str
    """Names of the tensors in their order, such as `x weight? out!`: `?` marks an optional one, `!` a written one."""
    shapes: Callable[..., Mapping[str, tuple[int, ...]]]
    """Shape that each tensor but the first must have. Raises UsageError if the inputs do not fit each other."""
    values: Callable[..., Mapping[str, object]]
    """Dims, dtype and attributes of the problem, from the operands. Attributes of the call need not be repeated."""
    takes_attributes: Mapping[str, Any] = field(default_factory=dict)
    """Attributes that the function takes: strings, bools or ints, with their defaults."""
    own_dtypes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Dtypes of the operands that do not share the first operand's dtype."""
    on_host: frozenset[str] = frozenset()
    """Operands that may be in the memory of the host."""
    in_place: tuple[tuple[str, str], ...] = ()
    """Pairs of a written tensor and an input that may be the same memory, element for element."""
    accepts: Callable[[str, Tensor], bool] = lambda name, tensor: bool(tensor.is_contiguous())
    """Returns whether the kernel takes an operand's strides. If not, it gets a copy."""
    viewed: Callable[..., Tensors | None] | None = None
    """Returns views with the shapes of the kernel's operands, or None if the strides allow none. If this is None, the
    kernel takes the tensors as they are if `accepts` is true for each."""
    laid_out: Callable[[str, Tensor], Tensor] = lambda name, tensor: tensor.contiguous()
    """A copy of an operand with strides that `accepts` accepts."""
    passed_as: Callable[[torch.dtype], torch.dtype] = lambda dtype: dtype
    """Returns the dtype as which the kernel gets elements of a dtype; they are viewed, not converted."""
    takes: str = ""
    """Dtypes that the op takes, for its error message; empty: the kernel's dtypes."""
    setting: Callable[[torch.dtype], object] | None = None
    """Reads the setting of torch that the problem depends on, given the first tensor's dtype; None if it depends on
    none."""
    write_empty: Callable[..., object] = lambda tensors, **attributes: tensors["out"].zero_()
    """Writes the outputs if an input has no elements: zeros, which is the sum of nothing."""

    generated: list[Callable[..., None]] = field(default_factory=list, init=False, compare=False, repr=False)
    """The function of the hot path, once it is generated."""

    def __post_init__(self) -> None:
        names = [*(taken.name for taken in self.taken), *self.takes_attributes, *self.kernel.scalars]
        check_distinct(self.op, "tensors, attributes and scalars of a call", names)

    @property
    def op(self) -> str:
        return self.kernel.op

    @cached_property
    def taken(self) -> tuple[Taken, ...]:
        """The tensors of `takes_tensors`."""
        words = self.takes_tensors.split()
        return tuple(Taken(word.rstrip("?!"), "?" in word, "!" in word) for word in words)

    @cached_property
    def written(self) -> frozenset[str]:
        """Names of the tensors that the op writes."""
        return frozenset(taken.name for taken in self.taken if taken.is_written)

    @property
    def takes_complex(self) -> bool:
        """True if the first tensor may have complex numbers, which the kernel gets as another dtype."""
        known = self.kernel.signature.dtypes
        return any(short_name(self.passed_as(dtype)) in known for dtype in (torch.complex32, torch.complex64))

    def in_order(
        self, tensors: Tensors, attributes: Mapping[str, Any], scalars: Mapping[str, float]
    ) -> list[Tensor | Any]:
        """Return the values of a call in the order of the declaration: tensors or None, attributes, scalars."""
        values = [tensors.get(taken.name) for taken in self.taken]
        values += [attributes.get(name, default) for name, default in self.takes_attributes.items()]
        return values + [scalars.get(name, default) for name, default in self.kernel.scalars.items()]

    def named(self, *values: Any) -> tuple[Tensors, dict[str, Any], dict[str, float]]:
        """Return the tensors that are given, the attributes and the scalars of `in_order` by their names."""
        found = iter(values)
        every = {taken: next(found) for taken in self.taken}
        tensors = {taken.name: x for taken, x in every.items() if x is not None or not taken.is_optional}
        attributes = {name: next(found) for name in self.takes_attributes}
        return tensors, attributes, {name: next(found) for name in self.kernel.scalars}

    def check(self, tensors: Tensors, **attributes: Any) -> None:
        """Check shapes, dtypes, devices and attributes, of fake and meta tensors too.

        Raises:
            UsageError: they do not fit each other or the op.
        """
        check_strided(self.op, tensors)
        (first, one), *others = tensors.items()
        for name, tensor in others:
            if tensor.dtype != one.dtype and name not in self.own_dtypes:
                raise UsageError(
                    f"{self.op} takes tensors of one dtype, and {first} is {one.dtype} but {name} is {tensor.dtype}; "
                    "convert one of them with .to()"
                )
        on_host = [name for name, tensor in tensors.items() if name in self.on_host and is_on_host(tensor)]
        check_one_device(self.op, {name: tensor for name, tensor in tensors.items() if name not in on_host})
        for name, value in attributes.items():
            self._check_choice(name, value)
        self._check_dtypes(first, one.dtype, tensors)
        expected = self.shapes(tensors, **{**self.takes_attributes, **attributes})
        for name, tensor in others:
            if shape(tensor) == expected.get(name, shape(tensor)):
                continue
            if name in self.written:
                raise UsageError(
                    f"{self.op} writes to an {name} of shape {expected[name]} here, not {shape(tensor)}; "
                    f"omit {name}, and it is allocated"
                )
            raise UsageError(
                f"{self.op} takes a tensor {name} of shape {expected[name]} here, not {shape(tensor)}; reshape it"
            )

    def problem(self, tensors: Tensors, **attributes: Any) -> Problem:
        """Return the problem of checked tensors, none of which may be empty."""
        operands = self.operands(tensors, **attributes)
        return self.problem_of(self._known(tensors) if operands is None else operands, **attributes)

    def problem_of(self, operands: Tensors, **attributes: Any) -> Problem:
        """Return the problem of the kernel's operands."""
        stated, known = {**self.takes_attributes, **attributes}, self.kernel.signature.parameters
        own = {name: value for name, value in stated.items() if name in known}
        return self.kernel.signature.problem({**own, **self.values(operands, **stated)})

    def operands(self, tensors: Tensors, **attributes: Any) -> Tensors | None:
        """Return the kernel's operands in the tensors' memory, or None if the kernel takes copies of them.

        They have the dtypes that the kernel knows. Negative and conjugate views are copied, as their memory holds other
        numbers.
        """
        if any(tensor.is_neg() or tensor.is_conj() for tensor in tensors.values()):
            return None
        known = self._known(tensors)
        if self.viewed is not None:
            return self.viewed(known, **{**self.takes_attributes, **attributes})
        return known if all(self.accepts(name, tensor) for name, tensor in known.items()) else None

    def overlapped(self, tensors: Tensors) -> tuple[str, str] | None:
        """Return a written tensor and another that it shares memory with and may not; None without such a pair."""
        for name, other in self.pairs(tensors):
            if not self._is_in_place(name, other, tensors) and shares_memory(tensors[other], tensors[name]):
                return name, other
        return None

    def pairs(self, names: Collection[str]) -> list[tuple[str, str]]:
        """Return the pairs of a written tensor and another of these, which must not overlap.

        Two written ones are one pair. Those of `in_place` are among them.
        """
        return [
            (name, other)
            for name in names
            for other in names
            if name in self.written and other != name and (other not in self.written or name < other)
        ]

    def bounds(self, tensors: Tensors) -> tuple[int, ...]:
        """Return two distances in bytes for each of `pairs`. If its tensors are as far apart as that, or further, they
        share no memory.

        They are `before` and `after` of `before < address of the written one - address of the other < after`, and 0 if
        the tensors are the same memory and may be.
        """
        found: list[int] = []
        for name, other in self.pairs(tensors):
            may_be = self._is_in_place(name, other, tensors)
            found += (0, 0) if may_be else (-extent(tensors[name]), extent(tensors[other]))
        return tuple(found)

    def _is_in_place(self, name: str, other: str, tensors: Tensors) -> bool:
        """Return whether two tensors are the same memory and may be."""
        return (name, other) in self.in_place and same_place(tensors[other], tensors[name])

    def _known(self, tensors: Tensors) -> Tensors:
        """Return the tensors under dtypes that the kernel knows."""
        passed = {name: self.passed_as(tensor.dtype) for name, tensor in tensors.items()}
        return {name: x if passed[name] == x.dtype else x.view(passed[name]) for name, x in tensors.items()}

    def _check_dtypes(self, first: str, dtype: torch.dtype, tensors: Tensors) -> None:
        known = self.kernel.signature.dtypes
        if short_name(self.passed_as(dtype)) not in known:
            raise UsageError(
                f"{self.op} takes {self.takes or ', '.join(known)}, and {first} is {dtype}; convert it with .to()"
            )
        for name, dtypes in self.own_dtypes.items():
            if name in tensors and short_name(tensors[name].dtype) not in dtypes:
                raise UsageError(
                    f"{self.op}'s {name} is {' or '.join(dtypes)}, not {tensors[name].dtype}; convert it with .to()"
                )

    def _check_choice(self, name: str, value: object) -> None:
        attributes = {attribute.name: attribute.choices for attribute in self.kernel.signature.attributes}
        choices = attributes.get(name)
        if choices is not None and not any(equal(choice, value) for choice in choices):
            raise UsageError(f"{self.op}'s {name} is one of {listed(choices)}, not {value!r}")
