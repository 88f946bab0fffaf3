"""The condition that refuses a config: found by running a constraint again and evaluating the parts of its result."""

from __future__ import annotations

import ast
import linecache
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any

LONGEST = 160
"""Characters of a condition that a message repeats."""


@dataclass(frozen=True)
class Condition:
    """A part of a constraint that decided against a config."""

    function: str
    """Name of the function that states it."""
    file: str
    line: int
    text: str
    """Source with its truth, such as `BLOCK <= N is false`; empty if the source is not known."""
    values: str
    """Source with values in place of the names, such as `256 <= 100`; empty if they say nothing more."""

    @property
    def place(self) -> str:
        """File and line."""
        return f"{self.file} line {self.line}"


def deciding_condition(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Condition | None:
    """Return the condition that made a function return False or a text; None if the function is not in Python.

    The function is called once more, and parts of its result are evaluated: it has no side effects.
    """
    if not isinstance(function, FunctionType | MethodType):
        return None
    code = function.__code__
    frame = _last_frame(code, lambda: function(*args, **kwargs))
    if frame is None:
        return None
    unknown = Condition(function.__name__, code.co_filename, frame.line, "", "")
    node = _node_of(code)
    scope = _Scope(function.__name__, code, frame.names, {} if node is None else _assigned(node))
    try:
        found = _decision(node, frame.line)
        return unknown if found is None else scope.decided_by(*found)
    except Exception:  # noqa: BLE001  a part may not be evaluated twice, as one that takes from an iterator
        return unknown


@dataclass(frozen=True)
class _Frame:
    """Names of a function when it returned, and the line."""

    line: int
    names: Mapping[str, Any]


def _last_frame(code: CodeType, call: Callable[[], object]) -> _Frame | None:
    """Return the frame of the last return of a function's code during a call."""
    found: _Frame | None = None

    def note(frame: FrameType, event: str, result: object) -> None:
        nonlocal found
        if event == "return" and frame.f_code is code:
            found = _Frame(frame.f_lineno, {**frame.f_globals, **frame.f_locals})

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
    return found


@dataclass(frozen=True)
class _Scope:
    """A function that returned, in which expressions are evaluated."""

    function: str
    code: CodeType
    names: Mapping[str, Any]
    assigned: Mapping[str, ast.expr]
    """Expressions of the names that the function assigns once."""

    def value(self, node: ast.expr) -> Any:
        """Return the value of an expression."""
        return eval(compile(ast.Expression(node), self.code.co_filename, "eval"), dict(self.names))

    def decided_by(self, node: ast.expr, truth: bool) -> Condition:
        """Return the part of an expression that makes it true or false."""
        match node, truth:
            case ast.UnaryOp(op=ast.Not(), operand=operand), _:
                return self.decided_by(operand, not truth)
            case (ast.BoolOp(op=ast.And(), values=parts), False) | (ast.BoolOp(op=ast.Or(), values=parts), True):
                return self.decided_by(next(part for part in parts if bool(self.value(part)) is truth), truth)
            case ast.BoolOp(op=ast.Or(), values=[*guards, ast.Call() as last]), False if _are_guards(guards):
                return self._called(last) or self._as_written(node, truth)  # `not SPLIT or can_split(...)`
            case ast.Name(id=name), _ if name in self.assigned:
                return self.decided_by(self.assigned[name], truth)
            case ast.IfExp(test=test, body=body, orelse=orelse), _:
                return self.decided_by(body if self.value(test) else orelse, truth)
            case ast.Call(func=ast.Name(id="bool"), args=[inner]), _:
                return self.decided_by(inner, truth)
            case ast.Call(), False:
                return self._called(node) or self._as_written(node, truth)
        return self._as_written(node, truth)

    def _called(self, node: ast.Call) -> Condition | None:
        """Return the condition in the function that an expression calls; None if that is not known."""
        if any(isinstance(arg, ast.Starred) for arg in node.args) or any(each.arg is None for each in node.keywords):
            return None
        args = [self.value(arg) for arg in node.args]
        kwargs = {keyword.arg: self.value(keyword.value) for keyword in node.keywords if keyword.arg}
        return deciding_condition(self.value(node.func), *args, **kwargs)

    def _as_written(self, node: ast.expr, truth: bool) -> Condition:
        """Return an expression as a condition.

        Raises:
            ValueError: its names have changed since: it no longer has that truth.
        """
        if bool(self.value(node)) is not truth:
            raise ValueError(ast.unparse(node))
        text, values = (ast.unparse(change.visit(deepcopy(node))) for change in (_Short(self), _Values(self)))
        known = values if values not in (text, "True", "False") and len(values) <= LONGEST else ""
        says = f"{_cut(text)} is {'true' if truth else 'false'}"
        return Condition(self.function, self.code.co_filename, node.lineno, says, known)


def _are_guards(parts: Sequence[ast.expr]) -> bool:
    """Return whether parts of an `or` only say when its last part matters: `not SPLIT`, `SPLIT == 1`."""
    return all(isinstance(part, ast.UnaryOp | ast.Compare) for part in parts)


class _Short(ast.NodeTransformer):
    """Writes `BLOCK` for `config["BLOCK"]`, a key of an argument."""

    def __init__(self, scope: _Scope) -> None:
        self._arguments = scope.code.co_varnames[: scope.code.co_argcount]

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """Return the key as a name, if it is a text."""
        match node:
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str(key))) if name in self._arguments:
                return ast.Name(key)
        return self.generic_visit(node)


class _Values(ast.NodeTransformer):
    """Writes the values of the operands of comparisons and of `and`, `or` and `not`."""

    def __init__(self, scope: _Scope) -> None:
        self._scope, self._short = scope, _Short(scope)

    def visit(self, node: ast.AST) -> ast.AST:
        """Return an operand's value as a name, or its source if that is shorter than the value."""
        if isinstance(node, ast.BoolOp | ast.Compare) or (
            isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
        ):
            return self.generic_visit(node)
        if not isinstance(node, ast.expr) or isinstance(node, ast.Constant):
            return node
        value = self._scope.value(node)
        if isinstance(value, int) and not isinstance(value, bool):
            return ast.Name(f"{value:,}")
        if isinstance(value, bool | float | str | tuple | None) and len(repr(value)) <= LONGEST // 2:
            return ast.Name(repr(value))
        short: ast.AST = self._short.visit(node)
        return short


def _decision(function: ast.AST | None, line: int) -> tuple[ast.expr, bool] | None:
    """Return the expression that a function returned at a line, or the condition of a constant, with its truth."""
    if isinstance(function, ast.Lambda):
        return None if isinstance(function.body, ast.Constant) else (function.body, False)
    if not isinstance(function, ast.FunctionDef):
        return None
    for statement, test, truth in _returns(function.body):
        if statement.value is not None and statement.lineno <= line <= (statement.end_lineno or 0):
            if not isinstance(statement.value, ast.Constant):
                return statement.value, False
            return None if test is None else (test, truth)
    return None


def _returns(
    body: list[ast.stmt], test: ast.expr | None = None, truth: bool = True
) -> Iterator[tuple[ast.Return, ast.expr | None, bool]]:
    """Yield the return statements of a function, each with the test of the innermost `if` around it and its truth."""
    for statement in body:
        if isinstance(statement, ast.Return):
            yield statement, test, truth
        elif isinstance(statement, ast.If):
            yield from _returns(statement.body, statement.test, True)
            yield from _returns(statement.orelse, statement.test, False)
        elif not isinstance(statement, ast.FunctionDef | ast.ClassDef):
            for name in ("body", "orelse", "finalbody"):
                yield from _returns(getattr(statement, name, []))


def _assigned(function: ast.AST) -> dict[str, ast.expr]:
    """Return the expressions of the names that a function assigns once, by `name = expression`."""
    stored = Counter(
        node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )
    return {
        node.targets[0].id: node.value
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and stored[node.targets[0].id] == 1
    }


def _node_of(code: CodeType) -> ast.Lambda | ast.FunctionDef | None:
    """Return the definition of a function in its file; None if it is not there, or several lambdas are on its line."""
    found = [
        node
        for node in _definitions(_source(code.co_filename))
        if code.co_firstlineno in (node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ())))
        and getattr(node, "name", "<lambda>") == code.co_name
    ]
    return found[0] if len(found) == 1 else None


def _source(file: str) -> str:
    """Return the text of a file as it is now."""
    linecache.checkcache(file)
    return "".join(linecache.getlines(file))


@lru_cache(maxsize=64)
def _definitions(source: str) -> tuple[ast.Lambda | ast.FunctionDef, ...]:
    """Return all functions of a source; none if it is not Python."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return ()
    return tuple(node for node in ast.walk(tree) if isinstance(node, ast.Lambda | ast.FunctionDef))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
