"""Kernels, found by name, by entry point or by file. A kernel file is loaded when it is asked for, not before."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType

import tuner.kernels
from tuner.errors import NoDevice, UnknownName, UsageError
from tuner.kernels.spec import Kernel, Signature

ENTRY_POINTS = "tuner.kernels"
"""Group of the entry points that packages offer kernels under: `my_op = "my_package.my_op"`, a kernel file's module."""

_NOT_KERNELS = {"spec", "source"}


def names() -> list[str]:
    """Ops that can be named here without a file: ours and those that installed packages offer."""
    return sorted(_modules())


def load(reference: str) -> Kernel:
    """The kernel called `reference`, or the one that the file `reference` ends in.

    Raises:
        UnknownName: no kernel is called that, or the file is not there.
        UsageError: the file does not end in `KERNEL = Kernel(...)`.
        NoDevice: the kernel's code needs a package that is not installed.
    """
    try:
        module = _from_file(Path(reference)) if reference.endswith(".py") else _by_name(reference)
    except ModuleNotFoundError as error:
        raise NoDevice(
            f"the code of {reference} needs {error.name}, which is not installed; pip install 'triton-tuner[gpu]'"
        ) from error
    kernel = getattr(module, "KERNEL", None)
    if not isinstance(kernel, Kernel):
        raise UsageError(f"a kernel file ends in KERNEL = Kernel(...), and {reference} does not")
    return kernel


def signature(reference: str, elsewhere: Callable[[], Mapping[str, Signature]]) -> Signature:
    """The signature of a kernel; where its code cannot be loaded, the one `elsewhere` has under that name.

    Raises:
        UnknownName: neither knows it.
    """
    try:
        return load(reference).signature
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


def _by_name(op: str) -> ModuleType:
    modules = _modules()
    if op not in modules:
        raise UnknownName(f"no kernel is called {op[:80]!r}; known are {', '.join(sorted(modules))}, or give a file.py")
    return importlib.import_module(modules[op])


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
    spec.loader.exec_module(module)
    return module
