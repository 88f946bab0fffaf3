"""What Ctrl-C does while something is measured, and what ends a worker."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupt:
    """The first Ctrl-C asks for an end, in which what was found is kept; the second ends the program at once."""

    def __init__(self) -> None:
        self._asked = False

    def __enter__(self) -> Callable[[], bool]:
        """What tells whether it was asked to."""
        self._before = signal.signal(signal.SIGINT, self._on_signal)
        return lambda: self._asked

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True


class Orders:
    """What Ctrl-C and SIGTERM mean to who works for others: while nothing is in hand they end the program at once.

    Work that is in hand is told by `given`, and brings itself to an end; a second order does not wait for it. Whoever
    is ended so sees KeyboardInterrupt.
    """

    def __init__(self) -> None:
        self.given: signal.Signals | None = None
        self._at_work = False

    def __enter__(self) -> Orders:
        ending = (signal.SIGINT, signal.SIGTERM)
        self._before = {number: signal.signal(number, self._on_signal) for number in ending}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Something is in hand."""
        self._at_work = True
        try:
            yield
        finally:
            self._at_work = False

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        waits = self._at_work and self.given is None
        self.given = self.given or signal.Signals(number)
        if not waits:
            raise KeyboardInterrupt
