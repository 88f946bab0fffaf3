"""`install`: every autotuned function of the process launches stored configs, of any library, imported before or after.

It replaces Triton's `Autotuner.run` and `Autotuner.__getitem__`, and what `torch.compile` reads in their place. Nothing
else of the tuner patches anything. Importing this module loads Triton. torch is loaded at the first call of a function,
since torch's own import may import Triton.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial, update_wrapper
from threading import RLock
from typing import Any

from triton.runtime.autotuner import Autotuner

from tuner.triton.compiled import NAME, EarlyPrune
from tuner.triton.mode import Mode, checked


@dataclass
class _State:
    """State of `install`."""

    original: Callable[..., Any] | None = None
    """Triton's own `Autotuner.run`; None if it is not replaced."""
    replacement: Callable[..., Any] | None = None
    is_on: bool = False
    mode: Mode | None = None


_state = _State()
_lock = RLock()


def install(mode: str | None = None) -> None:
    """Launch stored configs from every autotuned function of this process.

    Functions under `tuner.triton.autotune` keep the mode that they state. A second call changes the mode.

    Args:
        mode: as in `autotune`; None uses `TUNER_AUTOTUNE`.

    Raises:
        UsageError: there is no such mode.
    """
    stated = checked(mode)
    with _lock:
        _state.mode = stated
        if _state.original is None:
            _state.original = Autotuner.run
            _state.replacement = Autotuner.run = _replacement(Autotuner.run)
        if not _state.is_on:
            setattr(Autotuner, NAME, EarlyPrune())
            Autotuner.__getitem__ = _with_grid
        _state.is_on = True
        _forget_launches()


def uninstall() -> None:
    """Undo `install`. Configs that were served are forgotten, so that Triton tunes at the next call."""
    with _lock:
        if not _state.is_on:
            return
        _state.is_on, _state.mode = False, None
        delattr(Autotuner, NAME)
        del Autotuner.__getitem__
        _forget_launches()
        if Autotuner.run is _state.replacement:  # else another library has wrapped it, and it passes calls on
            assert _state.original is not None
            Autotuner.run = _state.original
            _state.original = _state.replacement = None
        from tuner.triton.context import CONTEXT

        CONTEXT.forget()


def installed_mode() -> Mode | None:
    """Return the mode that `install` states; None without one."""
    return _state.mode


def run_of_triton(autotuner: Autotuner) -> Callable[..., Any]:
    """Return Triton's own `run` of an autotuner, whether or not it is replaced."""
    return partial(_state.original or Autotuner.run, autotuner)


def _forget_launches() -> None:
    """Drop the kept launches of all functions, since the mode may have changed."""
    fast = sys.modules.get("tuner.triton.fast")  # which is loaded with the first call
    if fast is not None:
        fast.forget_all()


@cache
def _running() -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
    """Import and return the functions that calls need: `run`, `served_of` and `at`."""
    from tuner.triton.running import at, run
    from tuner.triton.served import served_of

    return run, served_of, at


def _replacement(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that replaces Triton's `run`."""

    def run(self: Autotuner, *args: Any, **kwargs: Any) -> Any:
        if not _state.is_on:
            return original(self, *args, **kwargs)
        run_served, served_of, _ = _running()
        return run_served(served_of(self), args, kwargs)

    return update_wrapper(run, original)


def _with_grid(self: Autotuner, grid: Any) -> Callable[..., Any]:
    """Return the function that launches with this grid, at less cost than through `run`."""
    if type(self).run is not _state.replacement:  # a class of another library, whose own `run` is called
        return super(Autotuner, self).__getitem__(grid)  # type: ignore[no-any-return]
    return _running()[2](self, grid)  # type: ignore[no-any-return]
