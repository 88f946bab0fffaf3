"""Kernels, found by name, by entry point, by file or by a captured call. A kernel's code is imported on first use."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from functools import cache
from hashlib import sha256
from importlib.metadata import entry_points
from pathlib import Path
from pkgutil import iter_modules
from traceback import extract_tb
from types import ModuleType

import tuner.kernels
from tuner.captured import document
from tuner.captured.kernel import CapturedKernel, kernel_of
from tuner.captured.problem import signature_of_call
from tuner.errors import KernelFault, NoDevice, TunerError, UnknownName, UsageError
from tuner.kernels.parts import exception_text, plain
from tuner.kernels.spec import Kernel, Signature

ENTRY_POINTS = "tuner.kernels"
"""Group of the entry points under which packages offer kernels: `my_op = "my_package.my_op"`, a kernel's module."""

_STATES_KERNEL = re.compile(r"^(KERNEL\s*[:=]|from \S+ import .*\bKERNEL\b)", re.MULTILINE)
_MESSAGE_NAME_LENGTH = 80
"""Characters of an unknown name that an error message repeats."""


def names() -> list[str]:
    """Return the ops that can be named without a file: ours and those that installed packages offer."""
    return sorted(_modules())


def load(op: str) -> Kernel:
    """Return the kernel of an op.

    Raises:
        UnknownName: no kernel has that name.
        UsageError: its module does not end in `KERNEL = Kernel(...)`.
        NoDevice: its code cannot be imported, usually since triton is missing.
    """
    module = _module_of(op)
    if module is None:
        known = names()
        alike = get_close_matches(op[:_MESSAGE_NAME_LENGTH], known)
        meant = f"did you mean {' or '.join(alike)}?" if alike else f"known are {', '.join(known)}, or give a file.py"
        raise UnknownName(f"no kernel is called {op[:_MESSAGE_NAME_LENGTH]!r}; {meant}")
    with _import_errors(op):
        kernel = _kernel_of(importlib.import_module(module), op)
    if op not in _shipped():
        _check_own_name(kernel, module)
    return kernel


def resolve(reference: str) -> Kernel:
    """Return the kernel of a reference from the command line: a name, a file that ends in .py, or a captured call's.

    Raises:
        as `load`; UnknownName too if there is no such file, UsageError if it holds no captured call.
    """
    if reference.endswith(document.SUFFIX):
        path = Path(reference).resolve()
        call, widen = document.read(path)
        with _import_errors(call.function.file):
            return kernel_of(call, widen=widen, document=str(path))
    if not reference.endswith(".py"):
        return load(reference)
    with _import_errors(reference):
        kernel = _kernel_of(_from_file(Path(reference)), reference)
    _check_own_name(kernel, reference)
    return kernel


def reference_of(kernel: Kernel) -> str:
    """Return the name or the file by which a command finds a kernel; its op if it is in neither."""
    if isinstance(kernel, CapturedKernel):
        return _short(Path(kernel.document)) if kernel.document else kernel.op
    if kernel.op in _modules() and load(kernel.op) == kernel:
        return kernel.op
    own = sys.modules.get(getattr(plain(kernel.launch), "__module__", ""))  # others may have imported the kernel
    for module in (own, *list(sys.modules.values())):
        if isinstance(module, ModuleType) and vars(module).get("KERNEL") is kernel and vars(module).get("__file__"):
            return _short(Path(vars(module)["__file__"]).resolve())
    return kernel.op


def _short(file: Path) -> str:
    """Return a path from the current folder on, if the file is in it."""
    return str(file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file)


def signature(reference: str, elsewhere: Callable[[], Mapping[str, Signature]]) -> Signature:
    """Return the signature of a kernel, or the one that `elsewhere` has for it if its code cannot be imported.

    That of a captured call needs no code.

    Raises:
        UnknownName: neither has that name.
    """
    if reference.endswith(document.SUFFIX):
        return signature_of_call(document.read(Path(reference))[0])
    try:
        return resolve(reference).signature
    except (NoDevice, UnknownName):
        known = elsewhere()
        if reference in known:
            return known[reference]
        raise


def shipped() -> list[str]:
    """Return our own ops, which are the modules and packages of `tuner.kernels` that state a KERNEL."""
    return sorted(_shipped())


def call_module(op: str) -> str | None:
    """Return the module `call` of the op's package, which calls the op on tensors; None without one."""
    module = _module_of(op)
    if module is None:
        return None
    with _import_errors(op):
        package = importlib.util.find_spec(module)
        inside = package is not None and package.submodule_search_locations is not None
        found = importlib.util.find_spec(f"{module}.call") if inside else None
    return None if found is None else found.name


def _module_of(op: str) -> str | None:
    """Return the module of a named op; those of shipped ops are known without reading entry points."""
    return _shipped().get(op) or _modules().get(op)


def _modules() -> dict[str, str]:
    """Return the module of each named op; ours win over an entry point of the same name."""
    return {point.name: point.value for point in entry_points(group=ENTRY_POINTS)} | _shipped()


@cache
def _shipped() -> dict[str, str]:
    """Read what each module states instead of importing it, since an import needs triton."""
    prefix = f"{tuner.kernels.__name__}."
    return {
        found.name: prefix + found.name
        for found in iter_modules(tuner.kernels.__path__)
        if (spec := importlib.util.find_spec(prefix + found.name))
        and spec.origin
        and _STATES_KERNEL.search(Path(spec.origin).read_text(encoding="utf-8"))
    }


def _kernel_of(module: ModuleType, reference: str) -> Kernel:
    kernel = getattr(module, "KERNEL", None)
    if not isinstance(kernel, Kernel):
        raise UsageError(f"a kernel file ends in KERNEL = Kernel(...), and {reference} does not")
    return kernel


def _check_own_name(kernel: Kernel, reference: str) -> None:
    """Raise KernelFault if a file that does not ship has the op of a shipped kernel without `replaces=True`."""
    ours = (Path(folder).resolve() for folder in tuner.kernels.__path__)
    if kernel.op in _shipped() and not kernel.replaces and not any(map(Path(reference).resolve().is_relative_to, ours)):
        raise KernelFault(
            f"an op has a name of its own, and {kernel.op} is one that ships; rename it, or state "
            "Kernel(..., replaces=True)",
            reference,
        )


@contextmanager
def _import_errors(reference: str) -> Iterator[None]:
    """Raise NoDevice, with the package to install, for an import that fails."""
    try:
        yield
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError)
        why = f"needs {error.name}, which is not installed" if missing else f"cannot be loaded: {error}"
        ours = (error.name or "").partition(".")[0] in ("", "torch", "triton")
        remedy = "pip install 'triton-tuner[gpu]'" if ours else "install what it imports"
        raise NoDevice(f"the code of {reference} {why}; {remedy}") from error


def _from_file(path: Path) -> ModuleType:
    """Import a file once under a name of its own, since Triton looks a jit function's module up by name."""
    path = path.resolve()
    if not path.is_file():
        raise UnknownName(f"there is no kernel file {path}")
    name = f"tuner_kernel_{path.stem}_{sha256(str(path).encode()).hexdigest()[:8]}"  # files may have the same stem
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} cannot be loaded as Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == str(path)]
        line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else "?"
        if isinstance(error, UsageError):
            raise KernelFault(str(error), f"{path} line {line}") from error
        if isinstance(error, ImportError | KeyboardInterrupt | TunerError):
            raise
        raise UsageError(f"{path} line {line} raises {exception_text(error)}") from error
    return module
