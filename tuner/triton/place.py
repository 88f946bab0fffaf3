"""The place of an autotuned function: module, file and name, by which a worker process loads it."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import KernelInterface

from tuner.captured.call import Function
from tuner.captured.problem import op_name
from tuner.triton.refusal import CannotCapture

_DEPTH = 16
"""Largest number of decorators around a function."""


def function_of(autotuner: Autotuner) -> Function:
    """Return the place of an autotuned function.

    Raises:
        CannotCapture: it is defined inside another function, or its module has no file.
    """
    plain = autotuner.base_fn
    own = sys.modules.get(plain.__module__)
    for module, name in _names(autotuner, own):
        file = _file(module, plain)
        if file is not None:
            return Function(_importable(module), file, name)
    if own is None or _file(own, plain) is None:
        raise CannotCapture(
            f"a captured function is defined in a file, and {plain.__qualname__} is not; move it into one"
        )
    raise CannotCapture(
        f"a captured function is defined at the top level of its module, and {plain.__qualname__} of "
        f"{plain.__module__} is not; move it there, so that a worker process can load it"
    )


def op_of(function: Function) -> str:
    """Return the op of a function. A script has the name of its file, and `python -m package` that of the package."""
    if function.module != "__main__":
        return op_name(function.module, function.name)
    file = Path(function.file)
    return op_name(file.parent.name if file.stem == "__main__" else file.stem, function.name)


def reaches(outer: Any, autotuner: Autotuner) -> bool:
    """Return whether an object is an autotuned function, or a decorator around it."""
    for _ in range(_DEPTH):
        if outer is autotuner:
            return True
        outer = getattr(outer, "__dict__", {}).get("fn")
        if outer is None:
            return False
    return False


def _names(autotuner: Autotuner, own: ModuleType | None) -> Iterator[tuple[ModuleType, str]]:
    """Yield the names of a function at the top level of modules: first of its own, then of those that decorate it."""
    if own is not None:
        usual = autotuner.base_fn.__name__
        names = vars(own)
        if reaches(names.get(usual), autotuner):
            yield own, usual
        yield from ((own, name) for name, value in list(names.items()) if reaches(value, autotuner))
    for module in list(sys.modules.values()):
        if isinstance(module, ModuleType):
            for name, value in list(vars(module).items()):
                if issubclass(type(value), KernelInterface) and reaches(value, autotuner):
                    yield module, name


def _file(module: ModuleType, plain: Any) -> str | None:
    file = getattr(module, "__file__", None) or (
        inspect.getsourcefile(plain) if module.__name__ == "__main__" else None
    )
    return str(Path(file).resolve()) if file and Path(file).is_file() else None


def _importable(module: ModuleType) -> str:
    """Return the name by which another process imports a module, such as the one given to `python -m`."""
    spec = getattr(module, "__spec__", None)
    if module.__name__ != "__main__" or spec is None or spec.name.rpartition(".")[2] == "__main__":
        return str(module.__name__)
    return str(spec.name)
