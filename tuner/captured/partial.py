"""Modules of which only the statements are run that some of their names need.

A statement that imports names from another module of the same package gets them in the same way. So a kernel of a large
library is loaded without an import of the library, which may take many seconds and use the card.
"""

from __future__ import annotations

import ast
import linecache
import sys
import tokenize
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from itertools import takewhile
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Any

from tuner.captured.slicing import Statements, imports
from tuner.errors import KernelFault, TunerError
from tuner.kernels.parts import exception_text

_PARTIAL: dict[tuple[str, Path, int], PartialModule] = {}
"""Modules by their name, their file, and the time of its last change, in ns."""


class NotPartial(Exception):
    """A statement needs a module of the same package as a whole."""


class PartialModule:
    """A module of which only what is asked for is run.

    Args:
        name: name of the module.
        file: its file.
        package: the package that it is in; empty for none.

    Raises:
        KernelFault: the file is no Python.
    """

    def __init__(self, name: str, file: Path, package: str) -> None:
        self._file, self._package = file, package
        tree = _parsed(file)
        self._statements = Statements(tree)
        self._relative = any(isinstance(node, ast.ImportFrom) and node.level > 0 for node in ast.walk(tree))
        self._run: set[int] = set()
        """Statements that were run, by the ids of their nodes."""
        self._module = ModuleType(name)
        self._module.__file__ = str(file)
        self._module.__package__ = package
        digest = sha256(f"{file} {name}".encode()).hexdigest()[:8]
        sys.modules[f"tuner_captured_{file.stem}_{digest}"] = self._module  # under its own name others get all of it
        linecache.checkcache(str(file))

    @property
    def imports_relatively(self) -> bool:
        """True if some statement of the file does."""
        return self._relative

    def get(self, name: str) -> Any:
        """Return the value of a name, once the statements that it needs were run.

        Raises:
            KeyError: no statement assigns it.
            KernelFault: a statement raises.
            NotPartial: a statement needs a module of the package as a whole.
            ImportError: a module is not installed.
        """
        needed = self._statements.needed(name)
        if not needed:
            raise KeyError(name)
        for node in needed:
            if id(node) not in self._run:
                self._run.add(id(node))  # before, since modules may import from each other
                try:
                    self._execute(node)
                except BaseException:
                    self._run.discard(id(node))
                    raise
        return vars(self._module)[name]

    def within(self, package: str) -> None:
        """Say which package the module is in."""
        self._package = self._module.__package__ = package

    def _execute(self, node: ast.stmt) -> None:
        own = [each for each in imports(node) if self._is_own(*each)]
        if own and isinstance(node, ast.ImportFrom):
            self._bind(node, self._absolute(node.level, node.module or ""))
        elif own:
            raise NotPartial(f"{self._file} line {node.lineno}")
        else:
            tree = ast.Module([*self._statements.future, node], type_ignores=[])
            with _faults(self._file):
                exec(compile(tree, str(self._file), "exec", dont_inherit=True), vars(self._module))

    def _is_own(self, level: int, name: str) -> bool:
        """Return whether a module that a statement imports is in the same package."""
        top = self._package.partition(".")[0]
        return bool(top) and (level > 0 or name.partition(".")[0] == top)

    def _absolute(self, level: int, name: str) -> str:
        """Return the full name of a module that is imported relatively."""
        if level == 0:
            return name
        parts = self._package.split(".")
        return ".".join([*parts[: len(parts) - level + 1], *filter(None, [name])])

    def _bind(self, node: ast.ImportFrom, module: str) -> None:
        """Assign the names that a statement imports from a module of the package."""
        source = _of_package(module, self._file)
        for alias in node.names:
            try:
                value = source.get(alias.name)
            except KeyError:  # all names, or a module
                raise NotPartial(f"{self._file} line {node.lineno}") from None
            setattr(self._module, alias.asname or alias.name, value)


def partial_module(name: str, file: Path, package: str) -> PartialModule:
    """Return a module of this process, once for each state of its file. Raises KernelFault as PartialModule."""
    key = name, file, file.stat().st_mtime_ns
    if key not in _PARTIAL:
        _PARTIAL[key] = PartialModule(name, file, package)
    return _PARTIAL[key]


def packages_of(file: Path) -> list[Path]:
    """Return the folders of the packages that a file is in, the innermost first."""
    return list(takewhile(lambda folder: (folder / "__init__.py").is_file(), file.resolve().parents))


def root_of(file: Path) -> Path:
    """Return the folder in which the package of a file lies, or the file itself if it is in none."""
    packages = packages_of(file)
    return packages[-1].parent if packages else file.resolve().parent


def _of_package(name: str, near: Path) -> PartialModule:
    """Return a module of the package that a file is in."""
    base = root_of(near).joinpath(*name.split("."))
    for file, package in ((base.with_name(f"{base.name}.py"), name.rpartition(".")[0]), (base / "__init__.py", name)):
        if file.is_file():
            return partial_module(name, file, package)
    raise NotPartial(name)


def _parsed(file: Path) -> ast.Module:
    try:
        with tokenize.open(file) as opened:
            return ast.parse(opened.read(), str(file))
    except (SyntaxError, UnicodeError, ValueError) as error:
        line = f" line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        rule = "the file of a captured call is Python"
        raise KernelFault(f"{rule}, and it raises {exception_text(error)}", f"{file}{line}") from error


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
