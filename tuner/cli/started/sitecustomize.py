"""Prepares each Python process of `tuner run`: once it imports Triton, the tuner is installed for autotuned kernels.

Python imports it at its start, since its folder is first on PYTHONPATH, which child processes inherit. It removes that
folder from `sys.path`, and runs the `sitecustomize` that Python would have found without it. Standard library only:
the tuner is imported after Triton.
"""

from __future__ import annotations

import atexit
import os
import sys
from _thread import get_ident
from importlib.machinery import ModuleSpec, PathFinder

TYPE_CHECKING = False
"""The constant of `typing`, stated here so that no process imports `typing` for it."""
if TYPE_CHECKING:
    from types import ModuleType

_HERE = os.path.dirname(os.path.abspath(__file__))


class _AfterTriton:
    """A finder that finds no module, and installs the tuner after Triton is imported.

    A process may look for Triton and not import it, as torch does. So the finder stays until the import.
    """

    def __init__(self) -> None:
        self._asking: set[int] = set()
        """Threads that ask the other finders, which ask this one again."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Return Triton's own spec with a loader that installs the tuner; None for all other modules."""
        thread = get_ident()
        if name != "triton" or thread in self._asking:
            return None
        from importlib.util import find_spec

        self._asking.add(thread)
        try:
            spec = find_spec(name)
        finally:
            self._asking.discard(thread)
        if spec is None or spec.loader is None:
            return spec
        loader = spec.loader
        execute = loader.exec_module

        def execute_and_install(module: ModuleType) -> None:
            loader.exec_module = execute  # type: ignore[method-assign]
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            execute(module)
            _install()

        loader.exec_module = execute_and_install  # type: ignore[method-assign]
        return spec


def _install() -> None:
    from importlib import import_module

    try:
        from tuner.engines.after_import import after_import
        from tuner.triton import install

        install()
        after_import("flag_gems.utils.libentry", lambda module: import_module("tuner.engines.flaggems").install())
    except Exception as error:  # noqa: BLE001  a script must run without the tuner too
        _say(f"autotuned kernels are left as they are: {type(error).__name__}: {str(error)[:200]}")


def _report() -> None:
    """Print what was served, at the end of the process that `tuner run` became."""
    file = os.environ.get("TUNER_RUN_REPORT", "")
    if os.environ.get("TUNER_RUN") != str(os.getpid()) or not os.path.exists(file):
        return
    try:
        with open(file) as opened:
            is_empty = len(opened.readlines()) < 2
        if is_empty:
            _say("no autotuned kernel was called")
        else:
            from tuner.cli.run_summary import summary

            _say(summary(file))
        os.remove(file)
    except Exception as error:  # noqa: BLE001  the script's own end must not change
        _say(f"no summary: {type(error).__name__}: {str(error)[:200]}")


def _say(line: str) -> None:
    try:
        sys.stderr.write("tuner: " + line + "\n")
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):
        pass  # stderr is closed


def _run_next() -> None:
    """Run the `sitecustomize` that this one hides."""
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    from importlib.util import module_from_spec

    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]
if os.environ.get("TUNER_RUN"):
    sys.meta_path.insert(0, _AfterTriton())
    if os.environ["TUNER_RUN"] == str(os.getpid()):
        atexit.register(_report)
_run_next()
