"""The functions of a kernel, called so that their faults name file, line and function."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from sys import float_info
from traceback import extract_tb
from types import FunctionType, MappingProxyType
from typing import Any

from tuner.errors import KernelFault, TunerError
from tuner.kernels.dtypes import shown

_MESSAGE_LENGTH = 300
"""Characters of an exception's text that a fault repeats."""


class KernelPart:
    """A function of a kernel. It raises KernelFault for an exception of the function and for a wrong result.

    Errors of this package, a lack of memory and errors of the card pass unchanged.

    Args:
        name: the field of `Kernel`.
        fn: the function as written.
        check: raises KernelFault for a wrong result.
        scalars: values of the kernel's scalars, added to a last argument that does not state them.
    """

    def __init__(
        self,
        name: str,
        fn: Callable[..., Any],
        check: Callable[[Any], None] | None = None,
        scalars: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        self.name, self.fn, self._check, self._scalars = name, fn, check, scalars

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function and check its result."""
        if self._scalars and args:
            args = (*args[:-1], {**self._scalars, **args[-1]})
        try:
            result = self.fn(*args, **kwargs)
            if self._check is None:
                return result
        except Exception as error:
            if (fault := self._fault(error)) is None:
                raise
            raise fault from error
        try:
            self._check(result)
        except KernelFault as error:
            raise KernelFault(str(error), self.place) from error
        return result

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KernelPart) and (self.name, self.fn) == (other.name, other.fn)

    def __hash__(self) -> int:
        return hash((self.name, self.fn))

    @property
    def place(self) -> str:
        """File and first line of the function; empty for one that is not written in Python."""
        code = getattr(self.fn, "__code__", None)
        return "" if code is None else f"{code.co_filename} line {code.co_firstlineno}"

    def _fault(self, error: Exception) -> KernelFault | None:
        """Return the fault that stands for an exception, or None if it passes unchanged."""
        if isinstance(error, KernelFault) and not error.place:
            return KernelFault(f"{self.name}: {error}", self._raised_at(error))
        if isinstance(error, TunerError) or type(error).__name__ == "OutOfMemoryError" or "CUDA error" in str(error):
            return None
        return KernelFault(f"{self.name} raises {exception_text(error)}", self._raised_at(error))

    def _raised_at(self, error: Exception) -> str:
        """Return the line of the function's file that raised the error."""
        file = self.fn.__code__.co_filename if isinstance(self.fn, FunctionType) else None
        lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == file]
        return f"{file} line {lines[-1]}" if lines else self.place


class ReferencePart(KernelPart):
    """The reference of a kernel. It is given outputs without elements, so that it depends on the inputs alone.

    Args:
        operands: the kernel's, which have the roles.
        fn: the function as written.
        scalars: values of the kernel's scalars, for tensors that do not state them.
    """

    def __init__(
        self, operands: Callable[[Any], Mapping[str, Any]], fn: Callable[..., Any], scalars: Mapping[str, float]
    ) -> None:
        super().__init__("reference", fn, check_dict("reference"))
        self._operands, self._given = operands, scalars

    def __call__(self, problem: Any, tensors: Mapping[str, Any], rows: slice) -> Any:
        """Call the function with the tensors, and check that its results have elements."""
        outputs = {name for name, operand in self._operands(problem).items() if operand.role == "out"}
        given = {name: tensor.to("meta") if name in outputs else tensor for name, tensor in tensors.items()}
        result = super().__call__(problem, {**self._given, **given}, rows)
        for name, tensor in result.items():
            if getattr(tensor, "is_meta", False):
                fault = f"reference computes {name} from what the kernel reads, not from its outputs; correct it"
                raise KernelFault(fault, self.place)
        return result


def exception_text(error: BaseException) -> str:
    """Return the exception's name and text on one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:_MESSAGE_LENGTH]}" if text else type(error).__name__


def plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function as written."""
    return function.fn if isinstance(function, KernelPart) else function


def check_number(field: str) -> Callable[[Any], None]:
    """Return a check for a result that is a number, not negative."""

    def check(result: Any) -> None:
        if isinstance(result, bool) or not isinstance(result, int | float) or not result >= 0:
            raise KernelFault(f"{field} returns a number from 0 on, not {shown(result)}; correct it")

    return check


def checked_values(op: str, scalars: Any, taken: Collection[str]) -> dict[str, float]:
    """Return the values of a kernel's scalars as floats.

    Args:
        taken: names of dims and attributes.

    Raises:
        KernelFault: they are no finite numbers by names of their own.
    """
    if not isinstance(scalars, Mapping):
        raise KernelFault(f"{op}: scalars is a dict, not {shown(scalars)}; write {{'eps': 1e-6}}")
    for name, value in scalars.items():
        if not isinstance(name, str) or not name.isidentifier():
            raise KernelFault(f"{op}: the name of a scalar is an identifier, not {shown(name)}; rename it")
        if name in taken:
            raise KernelFault(f"{op}: a scalar is no dim and no attribute, and {name} is one; rename the scalar")
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= float_info.max:
            raise KernelFault(f"{op}: the scalar {name} is a finite number, not {shown(value)}; correct it")
    return {name: float(value) for name, value in scalars.items()}


def check_stated(result: Any) -> None:
    """Raise KernelFault for a rule that returns None."""
    if result is None:
        raise KernelFault("valid returns True, False or a text, not None; add the return")


def check_dict(field: str) -> Callable[[Any], None]:
    """Return a check for a result that is a mapping."""

    def check(result: Any) -> None:
        if not isinstance(result, Mapping):
            raise KernelFault(f"{field} returns a dict, not {type(result).__name__}; add the return")

    return check
