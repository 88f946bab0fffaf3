"""The state of a search in the store, written in a thread of its own while the search runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from socket import gethostname
from threading import Event, Thread
from time import monotonic
from typing import Protocol, runtime_checkable

from tuner.db.store import Store
from tuner.errors import StoreError
from tuner.measure.measurer import Measurer
from tuner.records.progress import COMPARING, MEASURING, WAITING, InProgress, RunState


@dataclass(frozen=True)
class HeartbeatSettings:
    """Intervals of the writes."""

    change_s: float = 1.0
    """Shortest time between two writes, in seconds. A search that ends sooner writes none."""
    beat_s: float = 10.0
    """Time after which a state is written although it has not changed, in seconds."""


SETTINGS = HeartbeatSettings()


@runtime_checkable
class ShowsProgress(Protocol):
    """A measurer that can say what it works on. Read from another thread than the search's."""

    @property
    def in_progress(self) -> InProgress:
        """The configs that it works on now."""


class Heartbeat:
    """Writes the state of a search while it is entered, and removes it at the end.

    A state that cannot be written is left out: the search does not depend on it.

    Args:
        runs: ids of the runs that the search belongs to.
        measurer: the search's.
    """

    def __init__(
        self, store: Store, runs: Sequence[int], measurer: Measurer, settings: HeartbeatSettings = SETTINGS
    ) -> None:
        self._progress, self._runs, self._measurer, self._settings = store.progress, runs, measurer, settings
        self._rounds, self._contenders = 0, 0
        self._wrote = False
        self._over = Event()
        self._thread = Thread(target=self._beat, name=f"state of run {runs[0]}", daemon=True)

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if self._wrote:
            with suppress(StoreError):
                self._progress.remove(self._runs)

    def round(self, rounds: int, contenders: int) -> None:
        """Receive the progress of the interleaved comparison: its rounds so far, and the configs still in it."""
        self._rounds, self._contenders = rounds, contenders

    @property
    def state(self) -> RunState:
        """The work of the search at this moment."""
        if self._rounds:
            return RunState(COMPARING, rounds=self._rounds, contenders=self._contenders)
        if not isinstance(self._measurer, ShowsProgress):
            return RunState(MEASURING)
        now = self._measurer.in_progress
        stage = WAITING if self._measurer.waits_for_device else MEASURING
        return RunState(stage, now.compiling, now.compiled, now.measuring)

    def _beat(self) -> None:
        host, written, at = f"{gethostname()}:{os.getpid()}", None, 0.0
        while not self._over.wait(self._settings.change_s):
            state = self.state
            if state == written and monotonic() - at < self._settings.beat_s:
                continue
            with suppress(StoreError):  # the database may be reachable again in time
                self._progress.write(self._runs, host, state)
                self._wrote, written, at = True, state, monotonic()
