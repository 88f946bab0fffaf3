"""Workspaces of prepared launches: one for each stream, and in turn if they are on the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import Lock

import torch

from tuner.kernels.calling import Pointers
from tuner.kernels.launch import any_on_host
from tuner.kernels.spec import Operand
from tuner.launching.arguments import make_room
from tuner.launching.waiting import Places, Run
from tuner.measure.tensors import blank

MOST_STREAMS = 64
"""Number of streams whose workspaces are kept for one problem; then the oldest is dropped."""
TURNS = 2
"""Number of workspaces of a stream that are on the host: it fills one while the card reads another."""


def with_workspace(operands: Mapping[str, Operand], run: Run, places: Places | None = None) -> Run:
    """Give each stream a workspace of its own, and each captured launch one that belongs to the graph.

    A graph may be replayed on any stream, beside other work. Its workspace is memory of the graph's pool, which the
    graph zeroes before the launch. A workspace on the host is in no such pool, and is not captured (`is_captured`).

    Args:
        places: places of the streams, if programs of the launch wait for each other.
    """
    is_on_host = any_on_host(operands)
    placed = run if places is None else places.placed(run)
    kept: dict[int, Callable[[Pointers], object]] = {}
    one_at_a_time = Lock()  # no other thread may launch between our first launch and our second

    def on_stream(stream: int, pointers: Pointers) -> None:
        if torch.cuda.is_current_stream_capturing():
            run(stream, pointers + _addresses(blank(operands, "cuda")))
            return
        with one_at_a_time:
            launch = kept.get(stream)
            if launch is None:
                launch = _in_turn(operands, placed, stream) if is_on_host else _alone(operands, placed, stream)
                make_room(kept, MOST_STREAMS)
                kept[stream] = launch
            if not is_on_host:
                launch(pointers)
        if is_on_host:  # it may wait for the card and takes time of the host, and other streams need not wait for it
            launch(pointers)

    return on_stream


def _alone(operands: Mapping[str, Operand], run: Run, stream: int) -> Callable[[Pointers], object]:
    """Return launches on a stream, whose order keeps them apart."""
    made = blank(operands, "cuda")
    addresses = _addresses(made)

    def launch(pointers: Pointers, made: object = made) -> None:
        run(stream, pointers + addresses)

    return launch


def _in_turn(operands: Mapping[str, Operand], run: Run, stream: int) -> Callable[[Pointers], object]:
    """Return launches on a stream with workspaces that the host writes: each waits for the last use of its own."""
    turns = [_Turn(operands) for _ in range(TURNS)]
    one_at_a_time = Lock()

    def launch(pointers: Pointers) -> None:
        with one_at_a_time:
            turn = turns.pop(0)
            turns.append(turn)
            turn.wait()
            try:
                run(stream, pointers + turn.addresses)
            finally:  # a later step may raise, and what an earlier one has queued is under way
                turn.end.record()

    return launch


class _Turn:
    """A workspace with memory on the host, and the event after its last use.

    The card may still read it when it is dropped, and torch would give page-locked memory to the next that asks.
    """

    def __init__(self, operands: Mapping[str, Operand]) -> None:
        self.end = torch.cuda.Event()  # before what may raise, since `__del__` waits for it
        self._tensors = blank(operands, "cuda")
        self.addresses = _addresses(self._tensors)

    def wait(self) -> None:
        """Block until the card has done its last use."""
        self.end.synchronize()

    def __del__(self) -> None:
        with suppress(RuntimeError):  # in a child process, or after an error of the card, nothing is under way
            self.wait()


def _addresses(tensors: Mapping[str, torch.Tensor]) -> Pointers:
    return tuple(tensor.data_ptr() for tensor in tensors.values())
