"""The place of an autotuned function: the name under which a worker process finds it."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

from triton.runtime.autotuner import Autotuner

from tuner.captured.call import Function
from tuner.captured.problem import op_name
from tuner.triton.refusal import CannotCapture

_DEPTH = 16
"""Decorators that a function may have."""


def function_of(autotuner: Autotuner) -> Function:
    """Return the place of an autotuned function.

    Raises:
        CannotCapture: it is defined inside another function, or its module has no file.
    """
    plain = autotuner.base_fn
    shown = plain.__qualname__
    module = sys.modules.get(plain.__module__)
    file = None if module is None else _file(module, plain)
    if module is None or file is None:
        raise CannotCapture(f"a captured function is defined in a file, and {shown} is not; move it into one")
    name = _name(vars(module), autotuner, plain.__name__)
    if name is None:
        raise CannotCapture(
            f"a captured function is defined at the top level of its module, and {shown} of {plain.__module__} is not; "
            "move it there, so that a worker process can load it"
        )
    return Function(_importable(module), file, name)


def op_of(function: Function) -> str:
    """Return the op of a function. A script has the name of its file."""
    module = Path(function.file).stem if function.module == "__main__" else function.module
    return op_name(module, function.name)


def reaches(outer: Any, autotuner: Autotuner) -> bool:
    """Return whether an object is an autotuned function, or a decorator around it."""
    for _ in range(_DEPTH):
        if outer is autotuner:
            return True
        outer = getattr(outer, "__dict__", {}).get("fn")
        if outer is None:
            return False
    return False


def _name(names: dict[str, Any], autotuner: Autotuner, usual: str) -> str | None:
    """Return the name of a function in its module, None if it has none there."""
    if reaches(names.get(usual), autotuner):
        return usual
    return next((name for name, value in list(names.items()) if reaches(value, autotuner)), None)


def _file(module: Any, plain: Any) -> str | None:
    file = getattr(module, "__file__", None) or (
        inspect.getsourcefile(plain) if module.__name__ == "__main__" else None
    )
    return str(Path(file).resolve()) if file and Path(file).is_file() else None


def _importable(module: Any) -> str:
    """Return the name by which another process imports a module: that of `python -m`, if it was started so."""
    spec = getattr(module, "__spec__", None)
    if module.__name__ != "__main__" or spec is None or spec.name.rpartition(".")[2] == "__main__":
        return str(module.__name__)
    return str(spec.name)
