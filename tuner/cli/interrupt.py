"""What Ctrl-C does while something is measured."""

from __future__ import annotations

import signal
from collections.abc import Callable
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
