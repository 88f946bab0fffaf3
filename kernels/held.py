"""Pinned tensors that the card may still read."""

from __future__ import annotations

import os
from collections import deque
from threading import Lock

import torch
from torch import Tensor

_HELD: deque[tuple[torch.cuda.Event, Tensor]] = deque()
"""Tensors in the order of their launches, each with the event after its launch."""
_LOCK = Lock()


def hold(tensor: Tensor, device: torch.device) -> None:
    """Keep a pinned tensor until a later call finds that the work now on the current stream of a device has ended.

    torch gives the memory of a dropped one to the next that asks for some, unless an operation of its own still reads
    it. It knows nothing of a launch on an address. A CUDA graph needs its tensors longer, and its user keeps them.
    """
    with torch.cuda.device(device):
        if torch.cuda.is_current_stream_capturing():
            return
        event = torch.cuda.Event()
        event.record()
    with _LOCK:
        while _HELD and _HELD[0][0].query():
            _HELD.popleft()
        _HELD.append((event, tensor))


os.register_at_fork(after_in_child=_HELD.clear)  # a child does not share its parent's card
