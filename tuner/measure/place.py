"""File and line of an error in the code of a kernel, as the compiler or the interpreter of Triton raises it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from traceback import extract_tb
from types import FunctionType
from typing import Any


def place_of(error: BaseException, functions: Sequence[Any]) -> str:
    """Return file and line of an error, or of the first function if it was raised elsewhere; empty without one.

    Args:
        functions: jit functions of the launch. Their files are searched, and the functions that they name.
    """
    reached = {id(plain): (function, plain) for function in functions for function, plain in _reached(function)}
    chain = list(_chain(error))
    for each in reversed(chain):  # the innermost first: a call of another function wraps its error
        for function, plain in reached.values():
            line, source = getattr(getattr(each, "node", None), "lineno", None), getattr(each, "src", None)
            if line is not None and source is not None and source == getattr(function, "src", None):
                return f"{plain.__code__.co_filename} line {_first_line(plain) + line - 1}"
    files = {plain.__code__.co_filename for _, plain in reached.values()}
    for each in reversed(chain):
        lines = [frame for frame in extract_tb(each.__traceback__) if frame.filename in files]
        if lines:
            return f"{lines[-1].filename} line {lines[-1].lineno}"
    return next((f"{p.__code__.co_filename} line {_first_line(p)}" for _, p in reached.values()), "")


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes."""
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        yield following
        following = following.__cause__ or following.__context__


def _reached(function: Any) -> Iterator[tuple[Any, FunctionType]]:
    """Yield a jit function and those of its module, each with the Python function under it."""
    plain = getattr(function, "fn", None)
    if not isinstance(plain, FunctionType):
        return
    for value in (function, *plain.__globals__.values()):
        if isinstance(inner := getattr(value, "fn", None), FunctionType):
            yield value, inner


def _first_line(function: FunctionType) -> int:
    """Return the line of `def`, below the decorators."""
    lines, first = inspect.getsourcelines(function)
    return first + next((index for index, line in enumerate(lines) if line.lstrip().startswith("def ")), 0)
