"""The statements of a module that one of its names needs, found without running any.

Scripts run benchmarks at their top level, so only these statements are executed to load a function. The names that code
reads are taken from its compiled form, in which Python has resolved scopes.
"""

from __future__ import annotations

import ast
import builtins
import dis
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import TypeGuard

from tuner.kernels.source import global_names, own_global_names

_MUTATORS = frozenset(
    {
        *("append", "extend", "insert", "remove", "pop", "clear", "sort", "reverse", "appendleft"),
        *("update", "setdefault", "popitem", "add", "discard", "intersection_update", "difference_update"),
    }
)
"""Methods of lists, dicts and sets that change them."""
_PATH = "sys.path"
"""Name for the folders that imports search, used beside the names that statements assign and read."""
_EAGER = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
"""Names of nested code objects that run with their statement, as bodies of classes do."""


@dataclass
class _Statement:
    """A statement at the top level of a module."""

    node: ast.stmt
    binds: set[str] = field(default_factory=set)
    """Names that it assigns."""
    changes: set[str] = field(default_factory=set)
    """Names whose objects it changes."""
    reads: set[str] = field(default_factory=set)
    """Names that it reads when it is run."""
    later: set[str] = field(default_factory=set)
    """Names that its functions read when they are called."""
    imported: bool = False
    has_star: bool = False


class Statements:
    """The statements at the top level of a module.

    Blocks under `if __name__ == "__main__"` are left out, and so are calls whose result is not kept.

    Args:
        tree: the module.
    """

    def __init__(self, tree: ast.Module) -> None:
        self.future = [node for node in tree.body if _is_future(node)]
        """Imports from `__future__`, which decide how the others are compiled."""
        self._all = [
            _examined(node, self.future) for node in tree.body if not (_is_main_block(node) or _is_future(node))
        ]
        _add_globals(self._all)
        self._imported = {name for each in self._all if each.imported for name in each.binds}

    def needed(self, name: str) -> list[ast.stmt]:
        """Return the statements that the value of a name depends on, in their order; [] if none assigns it."""
        end = len(self._all)
        kept: set[int] = set()
        waiting: list[tuple[str, int]] = [(name, end)]
        seen: dict[str, int] = {}
        while waiting:
            wanted, before = waiting.pop()
            if seen.get(wanted, -1) >= before:
                continue
            seen[wanted] = before
            for place in self._sources(wanted, before):
                if place not in kept:
                    kept.add(place)
                    waiting += [(each, place) for each in self._all[place].reads]
                    waiting += [(each, end) for each in self._all[place].later]
        return [each.node for place, each in enumerate(self._all) if place in kept]

    def _sources(self, name: str, before: int) -> list[int]:
        """Return the indices of the statements before index `before` that assign a name or change its object.

        If none assigns it, return those that import all names of a module. Assignments to attributes of imported
        modules are left out.
        """
        statements = self._all[:before]
        assigned = [place for place, each in enumerate(statements) if name in each.binds]
        if not assigned:
            unknown = name.isidentifier() and not hasattr(builtins, name) and not name.startswith("__")
            return [place for place, each in enumerate(statements) if each.has_star and unknown]
        if name in self._imported:
            return assigned
        return assigned + [place for place, each in enumerate(statements) if name in each.changes]


def _examined(node: ast.stmt, future: Sequence[ast.ImportFrom]) -> _Statement:
    """Return what a statement assigns, changes and reads."""
    module = ast.Module([*future, node], type_ignores=[])
    code = compile(module, "<statement>", "exec", dont_inherit=True)
    found = _Statement(node)
    found.binds = {step.argval for step in dis.get_instructions(code) if step.opname in ("STORE_NAME", "STORE_GLOBAL")}
    found.binds -= {alias.name for statement in future for alias in statement.names}
    found.reads, found.later = _reads(code)
    found.imported = isinstance(node, ast.Import | ast.ImportFrom)
    for inner in _run_with(node):
        found.has_star |= isinstance(inner, ast.ImportFrom) and inner.names[0].name == "*"
        if (changed := _changed(inner)) is not None:
            found.changes.add(changed)
        found.binds |= {_PATH} & _attributes_changed(inner)
    if any(isinstance(inner, ast.Import | ast.ImportFrom) for inner in ast.walk(node)):
        found.reads.add(_PATH)
    return found


def _reads(code: CodeType) -> tuple[set[str], set[str]]:
    """Return the names that code reads when it is run, and those that functions inside it read."""
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    now, later = own_global_names(code), set[str]()
    for each in inner:
        if each.co_name in _EAGER or not each.co_flags & _OPTIMIZED:
            more, then = _reads(each)
            now |= more
            later |= then
        else:
            later |= global_names(each)
    return now, later


_OPTIMIZED = 0x1
"""Flag `CO_OPTIMIZED` of a function's code, which the body of a class does not have."""


def _changed(node: ast.AST) -> str | None:
    """Return the name whose object an expression or a statement changes."""
    target: ast.AST | None = None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _MUTATORS:
        target = node.func.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setattr" and node.args:
        target = node.args[0]
    elif isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
        target = node.value
    while isinstance(target, ast.Attribute | ast.Subscript):
        target = target.value
    return target.id if isinstance(target, ast.Name) else None


def _attributes_changed(node: ast.AST) -> set[str]:
    """Return the text of the attribute that an expression or a statement sets or changes, such as `sys.path`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _MUTATORS:
        return {ast.unparse(node.func.value)}
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
        return {ast.unparse(node.value)}
    return {ast.unparse(node)} if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) else set()


def _run_with(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a statement and the nodes inside it, except the bodies of functions."""
    yield node
    if isinstance(node, ast.Lambda):
        return
    inside: Sequence[ast.AST] = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        inside = [*node.decorator_list, node.args]
    for child in inside:
        yield from _run_with(child)


def _add_globals(statements: Sequence[_Statement]) -> None:
    """Add the globals that functions assign to the statements that call them."""
    assigned: dict[str, set[str]] = {}
    for each in statements:
        if isinstance(each.node, ast.FunctionDef):
            names = {name for inner in ast.walk(each.node) if isinstance(inner, ast.Global) for name in inner.names}
            if names:
                assigned[each.node.name] = names
    for each in statements:
        for inner in _run_with(each.node):
            if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) and inner.func.id in assigned:
                each.binds |= assigned[inner.func.id]


def _is_main_block(node: ast.stmt) -> bool:
    """Return whether a statement is `if __name__ == "__main__"`, with further conditions or without."""
    if not isinstance(node, ast.If) or node.orelse:
        return False
    tests = node.test.values if isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.And) else [node.test]
    return any(
        isinstance(test, ast.Compare)
        and isinstance(test.ops[0], ast.Eq)
        and {ast.unparse(test.left), ast.unparse(test.comparators[0])} == {"__name__", "'__main__'"}
        for test in tests
    )


def _is_future(node: ast.stmt) -> TypeGuard[ast.ImportFrom]:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"
