"""Functions of captured calls, loaded by the file and the name that a call has of them.

A script is not run: only the statements that the function needs are, in a module of their own. A module of a package is
loaded in the same way if these do not import the package, and imported otherwise.
"""

from __future__ import annotations

import ast
import importlib
import linecache
import sys
import tokenize
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from itertools import takewhile
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Any

from tuner.captured.call import Function
from tuner.captured.slicing import imports, needed
from tuner.errors import KernelFault, TunerError, UnknownName, UsageError
from tuner.kernels.parts import exception_text

SCRIPT = "__main__"
"""Module of a script."""
_LOADED: dict[tuple[Function, int], Any] = {}
"""Functions by their place and the time of the file's last change, in ns."""


def load(function: Function) -> Any:
    """Return the object that a captured call names, from the module in this process that has it if there is one.

    Raises:
        UnknownName: the file is not there, or has no such name at its top level.
        KernelFault: the file is no Python, or a statement that the function needs raises.
        UsageError: the module is another file's here.
        ImportError: a module that it imports is not installed.
    """
    file = Path(function.file)
    try:
        key = function, file.stat().st_mtime_ns
    except OSError as error:
        raise UnknownName(
            f"a captured call names the file of its function, and there is no {file}; capture it again"
        ) from error
    if key not in _LOADED:
        _LOADED[key] = _running(function, file) or _loaded(function, file)
    return _LOADED[key]


def _running(function: Function, file: Path) -> Any:
    """Return the object of the module in this process, or None."""
    module = sys.modules.get(function.module)
    if module is None or not _is_file(module, file):
        return None
    return vars(module).get(function.name)


def _loaded(function: Function, file: Path) -> Any:
    tree = _parsed(file)
    statements = needed(tree, function.name)
    if not statements:
        raise UnknownName(f"a captured call names a function at the top level of {file}, and it has no {function.name}")
    package = _package(function, file, statements)
    if function.module != SCRIPT and _import_package(statements, package):
        return _imported(function, file)
    return _executed(function, file, statements, package)


def _parsed(file: Path) -> ast.Module:
    try:
        with tokenize.open(file) as opened:
            return ast.parse(opened.read(), str(file))
    except (SyntaxError, UnicodeError, ValueError) as error:
        line = f" line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        raise KernelFault(
            f"the file of a captured call is Python, and it raises {exception_text(error)}", f"{file}{line}"
        ) from error


def _package(function: Function, file: Path, statements: Sequence[ast.stmt]) -> str:
    """Return the package of a function's module; empty for a script and for a module outside packages.

    A script that imports relatively was run as `python -m package.module`.
    """
    if function.module != SCRIPT:
        return function.module if file.name == "__init__.py" else function.module.rpartition(".")[0]
    inside = (node for statement in statements for node in ast.walk(statement))
    if not any(isinstance(node, ast.ImportFrom) and node.level > 0 for node in inside):
        return ""
    return ".".join(reversed([folder.name for folder in _packages(file)]))


def _packages(file: Path) -> list[Path]:
    """Return the folders of the packages that a file is in, the innermost first."""
    return list(takewhile(lambda folder: (folder / "__init__.py").is_file(), file.resolve().parents))


def _import_package(statements: Sequence[ast.stmt], package: str) -> bool:
    """Return whether statements import the package that they are in."""
    top = package.partition(".")[0]
    return bool(top) and any(level > 0 or name.partition(".")[0] == top for level, name in imports(statements))


def _imported(function: Function, file: Path) -> Any:
    """Return the object of a module that is imported as others import it."""
    with _searching(_root(file)):
        module = importlib.import_module(function.module)
    if not _is_file(module, file):
        raise UsageError(
            f"a captured call has its function in {file}, and {function.module} is {getattr(module, '__file__', None)} "
            "here; run this where it was captured"
        )
    if function.name not in vars(module):
        raise UnknownName(f"a captured call names a function at the top level of {file}, and it has no {function.name}")
    return vars(module)[function.name]


def _executed(function: Function, file: Path, statements: list[ast.stmt], package: str) -> Any:
    """Run statements in a module of their own and return the object.

    The module is kept under a name of its own, so that another import of the file gets all of it.
    """
    module = ModuleType(function.module)
    module.__file__ = str(file)
    module.__package__ = package
    digest = sha256(f"{file} {function.name}".encode()).hexdigest()[:8]
    sys.modules[f"tuner_captured_{file.stem}_{digest}"] = module
    linecache.checkcache(str(file))
    code = compile(ast.Module(statements, type_ignores=[]), str(file), "exec", dont_inherit=True)
    with _searching(*(() if package else (file.resolve().parent,)), _root(file)), _faults(file):
        exec(code, vars(module))
    try:
        return vars(module)[function.name]
    except KeyError:
        raise UnknownName(
            f"a captured call names a function at the top level of {file}, and it has no {function.name}"
        ) from None


@contextmanager
def _searching(*folders: Path) -> Iterator[None]:
    """Let imports look in these folders first, as in the process that captured the call."""
    added = [folder for folder in dict.fromkeys(map(str, folders)) if folder not in sys.path]
    sys.path[:0] = added
    try:
        yield
    finally:
        sys.path[:] = [folder for folder in sys.path if folder not in added]
        sys.path += added  # functions may import later; what this process needs itself comes first


def _root(file: Path) -> Path:
    """Return the folder in which the package of a file lies, or the file itself if it is in none."""
    packages = _packages(file)
    return packages[-1].parent if packages else file.resolve().parent


@contextmanager
def _faults(file: Path) -> Iterator[None]:
    """Raise KernelFault, with the line of the file, for what a statement raises. Failed imports pass."""
    try:
        yield
    except (ImportError, TunerError):
        raise
    except Exception as error:
        lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == str(file)]
        place = f"{file} line {lines[0]}" if lines else str(file)
        raise KernelFault(f"loading the function of a captured call raises {exception_text(error)}", place) from error


def _is_file(module: ModuleType, file: Path) -> bool:
    """Return whether a module was loaded from a file."""
    own = getattr(module, "__file__", None)
    return isinstance(own, str) and Path(own).resolve() == file.resolve()
