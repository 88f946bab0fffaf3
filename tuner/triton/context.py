"""State that the autotuned functions of a process share: client, settings, and warnings that are logged once."""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import Lock, RLock
from typing import TYPE_CHECKING
from weakref import WeakSet

import torch

from tuner.client import Client, default_client
from tuner.client.warn import WarnOnce
from tuner.triton.settings import AutotuneSettings

if TYPE_CHECKING:
    from tuner.triton.served import Served

_SETTINGS = AutotuneSettings()
_MOST_WARNINGS = 10_000


def current_card() -> int:
    """Return the index of the current GPU; 0 in a process that has not used one."""
    return torch.cuda.current_device() if torch.cuda.is_initialized() else 0


def is_recording() -> bool:
    """Return whether the current stream captures a CUDA graph."""
    return torch.cuda.is_initialized() and bool(torch.cuda.is_current_stream_capturing())


class Context:
    """State that the autotuned functions of a process share.

    Args:
        client: looks up stored configs; None is the client of `tuner.best_config`.
        settings: limits of what is captured and kept.
        card: returns the index of the current GPU.
        is_recording: returns whether the current stream captures a CUDA graph.
    """

    def __init__(
        self,
        client: Client | None = None,
        settings: AutotuneSettings = _SETTINGS,
        *,
        card: Callable[[], int] = current_card,
        is_recording: Callable[[], bool] = is_recording,
    ) -> None:
        self.client = default_client() if client is None else client
        self.settings, self.card, self.is_recording = settings, card, is_recording
        self.warn = WarnOnce(_MOST_WARNINGS)
        self.generation = 0
        """Number of refreshes. Configs found before the last one are looked up again."""
        self.captured = 0
        """Number of calls that were captured in this process."""
        self.is_full = False
        """True if no more calls are captured, since a limit is reached or the store failed."""
        self.counting = Lock()
        self._functions: WeakSet[Served] = WeakSet()
        self._is_listening = False
        _contexts.add(self)

    def enter(self, served: Served) -> None:
        """Register an autotuned function, so that its configs are looked up again after each refresh of the client."""
        with self.counting:
            self._functions.add(served)
            if not self._is_listening:
                self._is_listening = True
                self.client.on_refresh(lambda tables, in_background: None, self.forget)

    def forget(self) -> None:
        """Let each function look up its configs again."""
        self.generation += 1
        for served in list(self._functions):
            served.forget()

    def after_fork(self) -> None:
        """Replace the locks in a child process, since threads of its parent may have held them."""
        self.counting = Lock()
        for served in list(self._functions):
            served.lock, served.tuning = RLock(), RLock()


_contexts: WeakSet[Context] = WeakSet()


def _after_fork() -> None:
    for context in list(_contexts):
        context.after_fork()


os.register_at_fork(after_in_child=_after_fork)

CONTEXT = Context()
"""Shared state of this process's autotuned functions."""
