"""Launches whose programs wait for each other, on a limited number of streams at once.

Programs that wait stay on the card. If launches of ever more streams did, they would fill it, and a program that they
wait for could not start. So each stream has one of `WAITING_STREAMS` places, and if streams share a place, a launch
waits for the last one of another stream there.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import Lock

import torch

from tuner.kernels.calling import Pointers
from tuner.kernels.spec import WAITING_STREAMS

Run = Callable[[int, Pointers], object]
"""Launches on a stream, given the addresses of operands and workspace."""


def wait_for(before: int, stream: int) -> None:
    """Let a stream wait for the work that is now on another one of the current device.

    It does not wait for one that is captured: an event of that would draw this one into the graph. `torch.cuda.graph`
    waits for the card before a capture, so the last launch has ended.
    """
    event = torch.cuda.Event()
    with torch.cuda.stream(torch.cuda.ExternalStream(before)):
        if torch.cuda.is_current_stream_capturing():
            return
        event.record()
    torch.cuda.ExternalStream(stream).wait_event(event)


class Places:
    """The places of a card's streams. Streams take them in turn.

    Args:
        most: number of places.
        wait_for: lets a stream wait for the work on another.
    """

    def __init__(self, most: int = WAITING_STREAMS, wait_for: Callable[[int, int], None] = wait_for) -> None:
        self._most, self._wait_for = most, wait_for
        self._place_of: dict[int, int] = {}
        self._last: dict[int, int] = {}
        """The stream of the last launch in each place."""
        self._one_at_a_time = Lock()  # no launch comes between a wait and the launch that waited

    def placed(self, run: Run) -> Run:
        """Return a run on streams of the current device, each launch after the last one in its stream's place."""

        def on_stream(stream: int, pointers: Pointers) -> None:
            with self._one_at_a_time:
                place = self._place_of.setdefault(stream, len(self._place_of) % self._most)
                if (before := self._last.get(place, stream)) != stream:
                    self._wait_for(before, stream)
                self._last[place] = stream
                run(stream, pointers)

        return on_stream


_PLACES: dict[int, Places] = {}
"""Places by the index of the card."""


def places(index: int) -> Places:
    """Return the places of a card's streams."""
    return _PLACES.setdefault(index, Places())


os.register_at_fork(after_in_child=_PLACES.clear)  # a child does not share its parent's card
