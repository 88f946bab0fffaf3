"""Modules whose statements are executed only as far as the requested names need them.

Imports from other modules of the same package are partial too. So a kernel of a large library is loaded without
importing the library, which may take many seconds and use the card.
"""

from __future__ import annotations

import ast
import linecache
import sys
import tokenize
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import cached_property
from hashlib import sha256
from itertools import takewhile
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Any

from tuner.captured.slicing import Statements
from tuner.errors import KernelFault, TunerError
from tuner.kernels.parts import exception_text

IMPORT = "__tuner_import__"
"""Name of the function in a partial module that loads other partial modules."""
_PARTIAL: dict[tuple[str, Path, int], PartialModule] = {}
"""Modules by their name, their file, and the time of its last change, in ns."""


class NotPartial(Exception):
    """A statement imports all names of a module of the same package, so the module cannot be partial."""


class PartialModule:
    """A module whose statements are executed once a name that needs them is requested.

    Args:
        name: name of the module.
        file: its file.
        package: the package that it is in; empty for none.

    Raises:
        KernelFault: the file is not valid Python.
    """

    def __init__(self, name: str, file: Path, package: str) -> None:
        self._name, self._file, self._package = name, file, package
        tree = _parsed(file)
        self._statements = Statements(tree)
        self._relative = any(isinstance(node, ast.ImportFrom) and node.level > 0 for node in ast.walk(tree))
        self._run: set[int] = set()
        """Ids of the nodes of executed statements."""
        self.module = ModuleType(name)
        """The module. An attribute is loaded when it is read."""
        self.module.__file__ = str(file)
        self.module.__package__ = package
        vars(self.module).update({"__getattr__": self._attribute, IMPORT: self._import})
        digest = sha256(f"{file} {name}".encode()).hexdigest()[:8]
        # another name than its own, by which imports get the whole module
        sys.modules[f"tuner_captured_{file.stem}_{digest}"] = self.module
        linecache.checkcache(str(file))

    @property
    def imports_relatively(self) -> bool:
        """True if the file has a relative import."""
        return self._relative

    def within(self, package: str) -> None:
        """Set the package that the module is in."""
        self._package = self.module.__package__ = package

    def get(self, name: str) -> Any:
        """Execute the statements that a name needs, and return its value.

        Raises:
            KeyError: no statement assigns it.
            KernelFault: a statement raises.
            NotPartial: a statement needs all names of a module of the package.
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
        return vars(self.module)[name]

    def _execute(self, node: ast.stmt) -> None:
        tree = ast.Module([*self._statements.future, node], type_ignores=[])
        if any(self._is_own(*each) for each in _imports(node)):
            tree = ast.fix_missing_locations(_OwnImports(self._is_own, self._absolute).visit(deepcopy(tree)))
        with _faults(self._file), self._registered():
            exec(compile(tree, str(self._file), "exec", dont_inherit=True), vars(self.module))

    @contextmanager
    def _registered(self) -> Iterator[None]:
        """Register the module by its name while a statement runs, since dataclasses look it up."""
        if self._name in sys.modules:
            yield
            return
        sys.modules[self._name] = self.module
        try:
            yield
        finally:
            if sys.modules.get(self._name) is self.module:
                del sys.modules[self._name]

    def _is_own(self, level: int, name: str) -> bool:
        """Return whether a module that a statement imports is in the same package."""
        top = self._package.partition(".")[0]
        return bool(top) and (level > 0 or name.partition(".")[0] == top)

    def _absolute(self, level: int, name: str) -> str:
        """Return the absolute name of an imported module."""
        if level == 0:
            return name
        parts = self._package.split(".")
        return ".".join([*parts[: len(parts) - level + 1], *filter(None, [name])])

    def _import(self, module: str, name: str = "") -> Any:
        """Return a module of the package, or what `from module import name` assigns."""
        found = self._neighbour(module)
        if found is None and root_of(self._file, self._package).joinpath(*module.split(".")).is_dir():
            raise NotPartial(f"{self._file} imports {module}, which has no __init__.py")
        if found is None:
            raise ModuleNotFoundError(f"No module named {module!r}", name=module)
        if not name:
            return found.module
        if name == "*":
            raise NotPartial(f"{self._file} imports all names of {module}")
        try:
            return found.get(name)
        except KeyError:
            return found.member(name)

    def member(self, name: str) -> Any:
        """Return a module of this package, or what the module's own `__getattr__` returns for a name.

        Raises:
            ImportError: there is neither.
        """
        if self._file.name == "__init__.py" and (inner := self._neighbour(f"{self._name}.{name}")) is not None:
            return inner.module
        try:
            return self._own_getattr(name)
        except (KeyError, AttributeError):
            raise ImportError(f"cannot import name {name!r} from {self._name!r} ({self._file})") from None

    def _neighbour(self, name: str) -> PartialModule | None:
        """Return a module of the same package; None if there is no such file."""
        base = root_of(self._file, self._package).joinpath(*name.split("."))
        files = (base.with_name(f"{base.name}.py"), name.rpartition(".")[0]), (base / "__init__.py", name)
        return next((partial_module(name, file, package) for file, package in files if file.is_file()), None)

    @cached_property
    def _own_getattr(self) -> Callable[[str], Any]:
        """The function of this name in the file. Raises KeyError if there is none."""
        own: Callable[[str], Any] = self.get("__getattr__")
        vars(self.module)["__getattr__"] = self._attribute
        return own

    def _attribute(self, name: str) -> Any:
        """Load and return an attribute: the `__getattr__` of the module."""
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            try:
                return self.get(name)
            except KeyError:
                return self.member(name)
        except (ImportError, KernelFault, NotPartial) as error:
            raise AttributeError(f"module {self._name!r} has no attribute {name!r}: {error}") from error


def _imports(statement: ast.stmt) -> Iterator[tuple[int, str]]:
    """Yield level and name of each module that a statement imports, at once or inside a function."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.level, node.module or ""


class _OwnImports(ast.NodeTransformer):
    """Replaces imports from the same package by assignments from partial modules.

    Args:
        is_own: whether an import, by its level and its name, is of the same package.
        absolute: the full name of such a module.
    """

    def __init__(self, is_own: Callable[[int, str], bool], absolute: Callable[[int, str], str]) -> None:
        self._is_own, self._absolute = is_own, absolute

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.stmt | list[ast.stmt]:
        module = node.module or ""
        if not self._is_own(node.level, module):
            return node
        full = self._absolute(node.level, module)
        return [_assigned(node, alias.asname or alias.name, full, alias.name) for alias in node.names]

    def visit_Import(self, node: ast.Import) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for alias in node.names:
            top = alias.name.partition(".")[0]
            if not self._is_own(0, alias.name):
                found.append(ast.copy_location(ast.Import([alias]), node))
            elif alias.asname:
                found.append(_assigned(node, alias.asname, alias.name))
            else:
                found.append(_assigned(node, top, top))
        return found


def _assigned(node: ast.stmt, target: str, *arguments: str) -> ast.stmt:
    """Return the statement `target = __tuner_import__(*arguments)` in the place of another."""
    name = target if target.isidentifier() else "_"  # an import of all names, which is refused when it is executed
    call = ast.Call(ast.Name(IMPORT, ast.Load()), [ast.Constant(each) for each in arguments], [])
    return ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], call), node)


def partial_module(name: str, file: Path, package: str) -> PartialModule:
    """Return the partial module of a file, loaded again if it has changed. Raises KernelFault as PartialModule."""
    key = name, file, file.stat().st_mtime_ns
    if key not in _PARTIAL:
        _PARTIAL[key] = PartialModule(name, file, package)
    return _PARTIAL[key]


def packages_of(file: Path) -> list[Path]:
    """Return the folders of the packages that a file is in, the innermost first."""
    return list(takewhile(lambda folder: (folder / "__init__.py").is_file(), file.resolve().parents))


def root_of(file: Path, package: str) -> Path:
    """Return the folder in which the top-level package of a file lies, or the file itself if it is in none."""
    folders = file.absolute().parents
    return folders[min(len(package.split(".")) if package else 0, len(folders) - 1)]


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
    """Raise KernelFault, with the line of the file, for an error of a statement. ImportError passes."""
    try:
        yield
    except (ImportError, TunerError, NotPartial):
        raise
    except (Exception, SystemExit) as error:  # a script may end itself without what it needs
        lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == str(file)]
        place = f"{file} line {lines[0]}" if lines else str(file)
        raise KernelFault(f"loading the function of a captured call raises {exception_text(error)}", place) from error
