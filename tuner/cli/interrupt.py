"""Ctrl-C and SIGTERM as a stop token."""

from __future__ import annotations

import signal
from types import FrameType

from tuner.tuning.events import StopToken

_SIGNALS = signal.SIGINT, signal.SIGTERM


class Interrupt:
    """Handles Ctrl-C and SIGTERM while entered.

    A signal sets the token if some work polls it, so that the work ends and keeps its measurements. Otherwise, and at a
    second signal, it raises KeyboardInterrupt.
    """

    def __init__(self) -> None:
        self.token = StopToken()
        self.received: signal.Signals | None = None
        """The first signal."""

    def __enter__(self) -> Interrupt:
        self._before = {number: signal.signal(number, self._on_signal) for number in _SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        first = self.received is None
        self.received = self.received or signal.Signals(number)
        self.token.set()
        if not (first and self.token.is_watched):
            raise KeyboardInterrupt
