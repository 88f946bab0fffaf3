"""Functions that run once a module of an engine is imported."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from tuner.errors import TunerError

_log = logging.getLogger("tuner")

Action = Callable[[ModuleType], object]


def after_import(name: str, action: Action) -> None:
    """Call `action` with a module once it is imported, or now if it already is. Its error is logged in one line."""
    if (module := sys.modules.get(name)) is not None:
        _guarded(action, module)
    else:
        sys.meta_path.insert(0, _Once(name, action))


class _Once(MetaPathFinder):
    """A finder that leaves `sys.meta_path` when its module is imported."""

    def __init__(self, name: str, action: Action) -> None:
        self._name, self._action = name, action
        self._is_asking = False
        """True while it asks the other finders, which asks it again."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name or self._is_asking:
            return None
        self._is_asking = True
        try:
            spec = find_spec(fullname)
        finally:
            self._is_asking = False
        loader: Any = None if spec is None else spec.loader
        if loader is None:
            return spec
        execute = loader.exec_module

        def executed(module: ModuleType) -> None:
            execute(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            _guarded(self._action, module)

        try:
            loader.exec_module = executed
        except AttributeError:
            _log.warning("%s stays as it is, since its loader cannot be extended", fullname)
        return spec


def _guarded(action: Action, module: ModuleType) -> None:
    try:
        action(module)
    except TunerError as error:
        _log.warning("%s stays as it is: %s", module.__name__, error)
    except Exception as error:  # noqa: BLE001  no error may stop an engine
        _log.warning("%s stays as it is: %s: %s", module.__name__, type(error).__name__, error)
