"""Hashes of an autotuned function: of the code that runs, and of the author's reference.

They are equal in the process that captured a call and in one that loads only the function. They cover neither configs
nor globals that no code reads. Of a lambda they cover the expression, not the rest of its lines.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import textwrap
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary

from tuner.captured.autotuned import Autotuned
from tuner.captured.partial import IMPORT
from tuner.kernels.definition_hash import Reached
from tuner.kernels.source import tokens

_JIT_OPTIONS = ("do_not_specialize", "do_not_specialize_on_alignment", "noinline", "debug", "version")
"""Options of `triton.jit` that decide what is compiled."""
_SOURCES: WeakKeyDictionary[Any, dict[object, str]] = WeakKeyDictionary()
"""Source hashes by the jit function's Python function, then by heuristics and hooks. Each new problem needs one."""


def source_of(autotuned: Autotuned) -> str:
    """Return the first 16 hex digits of the sha256 over the jit function, heuristics, hooks and what they reach.

    Raises:
        UsageError: the source of a function is not in a file.
    """
    known = _SOURCES.setdefault(autotuned.jit.fn, {})
    others = (*autotuned.inner.items(), *dict.fromkeys(listed.pre_hook for listed in autotuned.configs))
    if others not in known:
        known[others] = _source(autotuned)
    return known[others]


def _source(autotuned: Autotuned) -> str:
    reached = _Loadable()
    jit = autotuned.jit.fn
    reached.add("", " ".join(tokens(reached.source(jit))))  # of torch's own kernels too
    reached.text(jit)
    for option in _JIT_OPTIONS:
        value = getattr(autotuned.jit, option, None) or getattr(autotuned.jit, "kwargs", {}).get(option)
        if value:
            reached.add(option, reached.text(value))
    for name, heuristic in autotuned.inner.items():
        reached.add(f"heuristic {name}", reached.text(heuristic))
    hooks = {reached.text(listed.pre_hook) for listed in autotuned.configs if listed.pre_hook is not None}
    reached.add("pre_hook", " ".join(sorted(hooks)))
    return reached.digest()


def definition_of(reference: Callable[..., Any]) -> str:
    """Return the first 16 hex digits of the sha256 over an author's reference and what it reaches.

    Raises:
        UsageError: the source of a function is not in a file.
    """
    reached = _Loadable()
    reached.add("reference", reached.text(reference))
    return reached.digest()


class _Loadable(Reached):
    """The code that functions reach, with texts that do not depend on which other statements of a module were run."""

    def __init__(self) -> None:
        super().__init__(exact=True)

    def _global(self, name: str, value: Any, namespace: Mapping[str, Any]) -> None:
        if name != IMPORT:
            super()._global(name, value, namespace)

    def source(self, function: FunctionType) -> str:
        code = function.__code__
        text = textwrap.dedent(inspect.getsource(code))
        if code.co_name == "<lambda>":
            return _lambda_text(function) or text
        (statement,) = ast.parse(text).body
        if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            return text
        lines = text.splitlines(keepends=True)
        return "".join(lines[statement.lineno - 1 :])  # below the decorators


def _lambda_text(function: FunctionType) -> str | None:
    """Return the expression of a lambda, found by the places of its code in its file; None if it is not there."""
    code = function.__code__
    places = [
        (line, column, end_line, end_column)
        for line, end_line, column, end_column in code.co_positions()
        if line is not None and end_line is not None and column is not None and end_column
    ]
    if not places:
        return None
    first, last = min(place[:2] for place in places), max(place[2:] for place in places)
    try:
        tree = ast.parse("".join(linecache.getlines(code.co_filename)))
    except SyntaxError:
        return None
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Lambda)
        and (node.body.lineno, node.body.col_offset) <= first
        and last <= (node.body.end_lineno or 0, node.body.end_col_offset or 0)
    ]
    innermost = max(around, key=lambda node: (node.lineno, node.col_offset), default=None)
    return None if innermost is None else ast.unparse(innermost)
