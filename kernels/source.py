"""Hash of a kernel's source, which changes if and only if the code that runs changes.

It covers the tokens of a function and of each function that it names, jit functions included, and the values of the
constants that they name; code of Python, torch and Triton is left out. Comments, the text of docstrings and layout are
left out too, so that editing them or moving a function keeps stored answers valid. (Triton's own `cache_key` covers
comments and line numbers, and `ast.dump` differs between Python versions.)
"""

from __future__ import annotations

import dis
import hashlib
import inspect
import io
import sys
import textwrap
import tokenize
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any

from tuner.errors import UsageError

_OTHERS_CODE = sys.stdlib_module_names | {"torch", "triton", "numpy"}
_LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, tokenize.ENDMARKER}
_MARKS = {tokenize.NEWLINE: "\n", tokenize.INDENT: "{", tokenize.DEDENT: "}"}
_READS = {"LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"}
"""Instructions that read a name of the module."""
_FSTRING_START = getattr(tokenize, "FSTRING_START", None)
_FSTRING_END = getattr(tokenize, "FSTRING_END", None)


def source_hash(function: Callable[..., Any]) -> str:
    """Return the first 16 hex digits of the sha256 over `function` and the code of ours that it reaches.

    Raises:
        UsageError: the source of a function is not in a file.
    """
    digest = hashlib.sha256()
    for name, piece in sorted(_reached(plain_function(function), seen=set())):
        digest.update(f"{name}\0{piece}\0".encode())
    return digest.hexdigest()[:16]


def tokens(source: str) -> list[str]:
    """Return the tokens of a function's source, without comments, docstrings, layout and position."""
    found: list[str] = []
    lines = source.splitlines(keepends=True)
    depth, start = 0, (1, 0)
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == _FSTRING_START:  # one token up to Python 3.11, many since: take the text they span
                start = start if depth else token.start
                depth += 1
            elif token.type == _FSTRING_END:
                depth -= 1
                if depth == 0:
                    found.append(_between(lines, start, token.end))
            elif depth == 0 and token.type not in _LAYOUT:
                found.append(_MARKS.get(token.type, token.string))
    except tokenize.TokenError:
        pass  # the lines of a lambda may end in the middle of the statement around it
    return list(_without_docstrings(found))


def _without_docstrings(found: list[str]) -> Iterator[str]:
    before = "\n"
    for token, after in zip(found, [*found[1:], "\n"], strict=True):
        is_statement = before in ("\n", "{", "}") and after == "\n"
        if not (is_statement and token.lstrip("rRuUbB")[:1] in ("'", '"')):
            yield token
        before = token


def _between(lines: list[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    (first, from_column), (last, to_column) = start, end
    spanned = lines[first - 1 : last]
    spanned[-1] = spanned[-1][:to_column]
    spanned[0] = spanned[0][from_column:]
    return "".join(spanned)


def _reached(function: FunctionType, seen: set[FunctionType]) -> Iterator[tuple[str, str]]:
    seen.add(function)
    try:
        text = textwrap.dedent(inspect.getsource(function))
    except OSError as error:
        raise UsageError(
            f"a kernel's source is read from its file, and {function.__qualname__} has no file; define it in one"
        ) from error
    yield function.__qualname__, " ".join(tokens(text))
    for name, value, _ in named(function):
        inner = plain_function(value)
        if isinstance(inner, FunctionType):
            if inner not in seen and not is_others(inner.__module__):
                yield from _reached(inner, seen)
        elif isinstance(constant := getattr(value, "value", value), int | float | str | tuple):
            yield name, repr(constant)


def is_others(module: str) -> bool:
    """Return whether a module is of Python, torch, triton or numpy, whose code is left out."""
    return module.partition(".")[0] in _OTHERS_CODE


def named(function: FunctionType, *, exact: bool = False) -> Iterator[tuple[str, Any, Mapping[str, Any]]]:
    """Yield the names in a function's code with their values: globals, closed-over values, attributes of modules.

    Each comes with the namespace that it is found in.

    Args:
        exact: leave out globals that only share their name with an attribute in the code.
    """
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    closed_over = {name: cell.cell_contents for name, cell in cells}
    scope: Mapping[str, Any] = {**function.__globals__, **closed_over}
    names = sorted({*closed_over, *_names(function.__code__)})
    for name in sorted({*closed_over, *global_names(function.__code__)}) if exact else names:
        value = scope.get(name)
        yield name, value, closed_over if name in closed_over else function.__globals__
        if isinstance(value, ModuleType) and not is_others(value.__name__):
            yield from ((attribute, getattr(value, attribute, None), vars(value)) for attribute in names)


def _names(code: CodeType) -> set[str]:
    """Return the global names in a function's code and in the functions inside it, whose free variables are its own."""
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return set(code.co_names).union(*map(_names, inner))


def global_names(code: CodeType) -> set[str]:
    """Return the names that code reads from its module, and those of the functions inside it."""
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return own_global_names(code).union(*map(global_names, inner))


def own_global_names(code: CodeType) -> set[str]:
    """Return the names that code reads from its module, without those of the functions inside it."""
    return {step.argval for step in dis.get_instructions(code) if step.opname in _READS}


def plain_function(value: Any) -> Any:
    """Return the Python function under a jit decorator, which Triton keeps as `fn`; any other value as it is."""
    inner = getattr(value, "fn", None)
    return inner if isinstance(inner, FunctionType) else value
