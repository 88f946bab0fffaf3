"""Faster calls of grids: `triton.cdiv`, which most of them call, takes longer than a launch in C.

Triton's `cdiv` and `next_power_of_2` also serve compiled code, and check at each call whether they do. A grid that
reads them from its globals is called with plain functions in their place. Nothing else is changed.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from dis import get_instructions
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import triton

from tuner.launching.arguments import make_room

_MOST_CODES = 4096
"""Number of code objects of grids that are kept; then the oldest is dropped."""


def evaluated(grid: Callable[[dict[str, Any]], Any], named: dict[str, Any]) -> Any:
    """Return what a grid returns for arguments by name."""
    if type(grid) is not FunctionType:
        return grid(named)
    code = grid.__code__
    known = _known.get(id(code))
    if known is None or known[0] is not code or known[1] is not grid.__globals__:
        known = _look_at(grid)
    _, _, quick, own_globals, has_defaults = known
    if quick is None:
        return grid(named)
    defaults = grid.__defaults__ if has_defaults else None  # reading an attribute of a function takes a while
    return FunctionType(quick, own_globals, "grid", defaults, grid.__closure__)(named)


class _Code(NamedTuple):
    """The code of a grid."""

    code: CodeType
    its_globals: dict[str, Any]
    quick: CodeType | None
    """The same code, for other globals; None if it is called as it is."""
    globals: dict[str, Any]
    """Its globals, with plain functions for those of Triton."""
    has_defaults: bool
    """True if it may have default values."""


class _Globals(dict[str, Any]):
    """Globals of a function with some replaced. All others are read from the function's own at each access."""

    def __init__(self, replaced: dict[str, Any], others: dict[str, Any]) -> None:
        super().__init__(replaced)
        self._others = others

    def __missing__(self, name: str) -> Any:
        return self._others[name]


class _Triton:
    """The module `triton` with plain functions."""

    def __init__(self) -> None:
        self.cdiv, self.next_power_of_2 = _cdiv, _next_power_of_2

    def __getattr__(self, name: str) -> Any:
        return getattr(triton, name)


def _cdiv(x: Any, y: Any) -> Any:
    """Return `x / y`, rounded up, as Triton does."""
    return (x + y - 1) // y if type(x) is int and type(y) is int else triton.cdiv(x, y)


def _next_power_of_2(n: Any) -> Any:
    """Return the smallest power of two that is at least `n`, as Triton does."""
    return 1 << (n - 1).bit_length() if type(n) is int and n > 0 else triton.next_power_of_2(n)


_PLAIN: dict[int, Any] = {
    id(triton): _Triton(),
    id(triton.cdiv): _cdiv,
    id(triton.next_power_of_2): _next_power_of_2,
}
"""Plain objects in place of Triton's, by the ids of these."""
_USUAL = ("cdiv", "next_power_of_2", "abs", "int", "len", "max", "min", "sum")
"""Attributes of Triton and built-in functions that grids read, unless globals have these names."""
_known: dict[int, _Code] = {}


def _look_at(grid: FunctionType) -> _Code:
    """Find the globals that a grid reads, and keep the result."""
    code, its_globals = grid.__code__, grid.__globals__
    names = code.co_names
    replaced = {name: _PLAIN[id(its_globals[name])] for name in names if id(its_globals.get(name)) in _PLAIN}
    if not replaced or code.co_kwonlyargcount or not _is_simple(code):
        known = _Code(code, its_globals, None, its_globals, False)
    else:
        own: dict[str, Any] = {**replaced, "__builtins__": its_globals.get("__builtins__", builtins)}
        known_names = {*replaced, *(name for name in _USUAL if name not in its_globals)}
        is_whole = known_names.issuperset(names)
        own_globals = own if is_whole else _Globals(own, its_globals)
        known = _Code(code, its_globals, code.replace(), own_globals, code.co_argcount > 1)
    make_room(_known, _MOST_CODES)
    _known[id(code)] = known
    return known


def _is_simple(code: CodeType) -> bool:
    """Return whether a grid sets no global variable and makes no function, which would have its globals too."""
    sets = any(each.opname in ("STORE_GLOBAL", "DELETE_GLOBAL") for each in get_instructions(code))
    return not sets and not any(isinstance(constant, CodeType) for constant in code.co_consts)
