"""Kernels, found by name, by entry point or by file. A kernel file is loaded when it is asked for, not before."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from pkgutil import iter_modules
from traceback import extract_tb
from types import ModuleType

import tuner.kernels
from tuner.errors import NoDevice, TunerError, UnknownName, UsageError
from tuner.kernels.spec import Kernel, Signature

ENTRY_POINTS = "tuner.kernels"
"""Group of the entry points that packages offer kernels under: `my_op = "my_package.my_op"`, a kernel file's module."""

_NOT_KERNELS = {"spec", "source", "rules", "device"}


def names() -> list[str]:
    """Ops that can be named here without a file: ours and those that installed packages offer."""
    return sorted(_modules())


def load(op: str) -> Kernel:
    """The kernel called `op`.

    Raises:
        UnknownName: no kernel is called that.
        UsageError: its module does not end in `KERNEL = Kernel(...)`.
        NoDevice: its code cannot be loaded here, most often for want of triton.
    """
    modules = _modules()
    if op not in modules:
        raise UnknownName(f"no kernel is called {op[:80]!r}; known are {', '.join(sorted(modules))}, or give a file.py")
    with _import_errors(op):
        return _kernel_of(importlib.import_module(modules[op]), op)


def resolve(reference: str) -> Kernel:
    """The kernel of a reference from the command line: a name, or a file that ends in .py.

    Raises:
        as `load`; UnknownName too if there is no such file.
    """
    if not reference.endswith(".py"):
        return load(reference)
    with _import_errors(reference):
        return _kernel_of(_from_file(Path(reference)), reference)


def signature(reference: str, elsewhere: Callable[[], Mapping[str, Signature]]) -> Signature:
    """The signature of a kernel; where its code cannot be loaded, the one `elsewhere` has under that name.

    Raises:
        UnknownName: neither knows it.
    """
    try:
        return resolve(reference).signature
    except (NoDevice, UnknownName):
        known = elsewhere()
        if reference in known:
            return known[reference]
        raise


def _modules() -> dict[str, str]:
    """Importable module of each named op."""
    ours = {
        found.name: f"tuner.kernels.{found.name}"
        for found in iter_modules(tuner.kernels.__path__)
        if found.name not in _NOT_KERNELS
    }
    return {point.name: point.value for point in entry_points(group=ENTRY_POINTS)} | ours


def _kernel_of(module: ModuleType, reference: str) -> Kernel:
    kernel = getattr(module, "KERNEL", None)
    if not isinstance(kernel, Kernel):
        raise UsageError(f"a kernel file ends in KERNEL = Kernel(...), and {reference} does not")
    return kernel


@contextmanager
def _import_errors(reference: str) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError)
        why = f"needs {error.name}, which is not installed" if missing else f"cannot be loaded: {error}"
        ours = (error.name or "").partition(".")[0] in ("", "torch", "triton")
        remedy = "pip install 'triton-tuner[gpu]'" if ours else "install what it imports"
        raise NoDevice(f"the code of {reference} {why}; {remedy}") from error


def _from_file(path: Path) -> ModuleType:
    path = path.resolve()
    if not path.is_file():
        raise UnknownName(f"there is no kernel file {path}")
    name = f"tuner_kernel_{path.stem}"
    if name in sys.modules and sys.modules[name].__file__ == str(path):
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} cannot be loaded as Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # Triton looks a jit function's module up by name
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, ImportError | KeyboardInterrupt | TunerError):
            raise
        lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == str(path)]
        line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else "?"
        raise UsageError(f"{path} line {line} raises {type(error).__name__}: {error}") from error
    return module
