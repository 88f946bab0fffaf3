"""Functions of captured calls, loaded by file and name.

Only the statements of a script that the function needs are executed. Modules of a package are loaded in the same way,
and imported if that fails.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from tuner.captured.call import Function
from tuner.captured.partial import NotPartial, packages_of, partial_module, root_of
from tuner.errors import KernelFault, TunerError, UnknownName, UsageError
from tuner.kernels.parts import exception_text

SCRIPT = "__main__"
"""Module of a script."""
_LOADED: dict[tuple[Function, int], Any] = {}
"""Functions by their place and the time of the file's last change, in ns."""


def load(function: Function) -> Any:
    """Return the object that a captured call names. A module that this process has imported is used first.

    Raises:
        UnknownName: the file is not there, or has no such name at its top level.
        KernelFault: the file is not valid Python, or a statement that the function needs raises.
        UsageError: the module's name belongs to another file here.
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
    try:
        if function.module == SCRIPT:
            return _of_script(function, file)
        return _of_module(function, file)
    except KeyError:
        raise UnknownName(
            f"a captured call names a function at the top level of {file}, and it has no {function.name}"
        ) from None


def _of_script(function: Function, file: Path) -> Any:
    """Return the object of a script. One with relative imports was run as `python -m package.module`."""
    script = partial_module(SCRIPT, file, "")
    package = ".".join(folder.name for folder in reversed(packages_of(file)))
    folders = [file.resolve().parent, root_of(file, package)]
    if script.imports_relatively:
        script.within(package)
        del folders[0]
    with _searching(*folders):
        try:
            return script.get(function.name)
        except NotPartial as error:
            raise KernelFault(
                f"a script that is run with -m imports the names that it needs, and {error}; name them", str(file)
            ) from error


def _of_module(function: Function, file: Path) -> Any:
    """Return the object of a module: execute the statements that it needs, or import the module if that fails."""
    package = function.module if file.name == "__init__.py" else function.module.rpartition(".")[0]
    with _searching(root_of(file, package)):
        try:
            return partial_module(function.module, file, package).get(function.name)
        except KernelFault as fault:
            try:
                return _imported(function, file)
            except (KernelFault, ImportError):
                raise fault from fault.__cause__
        except (NotPartial, ImportError, KeyError):
            return _imported(function, file)


def _imported(function: Function, file: Path) -> Any:
    try:
        module = importlib.import_module(function.module)
    except (ImportError, TunerError):
        raise
    except (Exception, SystemExit) as error:
        raise KernelFault(f"importing {function.module} raises {exception_text(error)}", str(file)) from error
    if not _is_file(module, file):
        raise UsageError(
            f"a captured call has its function in {file}, and {function.module} is {getattr(module, '__file__', None)} "
            "here; run this where it was captured"
        )
    return vars(module)[function.name]


@contextmanager
def _searching(*folders: Path) -> Iterator[None]:
    """Let imports look in these folders first, as in the process that captured the call."""
    before = [*sys.path]
    sys.path[:0] = [folder for folder in dict.fromkeys(map(str, folders)) if folder not in before]
    try:
        yield
    finally:  # functions may import later; what this process needs itself comes first
        sys.path[:] = [*before, *(folder for folder in dict.fromkeys(sys.path) if folder not in before)]


def _is_file(module: ModuleType, file: Path) -> bool:
    """Return whether a module was loaded from a file."""
    own = getattr(module, "__file__", None)
    return isinstance(own, str) and Path(own).resolve() == file.resolve()
