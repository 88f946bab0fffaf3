"""Timing on the device: cold L2, work queued in front, one sample a launch.

Every launch is preceded by a write larger than L2, so it finds nothing of its operands there, as in a model where
other layers ran in between. Device events stand around the launch alone. The flushes keep the device busy while the
host prepares the next launch, so the host is never in the interval: without that, a 2.7 us kernel reads 34.5 us
(H200, 2026-11-27).
"""

from __future__ import annotations

from collections.abc import Callable

import torch

_FLUSH_BYTES = 256 * 2**20
"""Five times the L2 of an H100, and long enough to write (60-100 us) for the host to queue a launch meanwhile."""
_HEAD_START = 5
"""Flushes queued before the first launch, so that the host is ahead from the start."""
DROPPED = 1
"""Leading samples that are thrown away: the first launch loads code and constants."""


class Clock:
    """Times callables that launch device work on the current stream."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._flush = torch.empty(_FLUSH_BYTES // 4, dtype=torch.int32, device=device)

    def samples(
        self, launch: Callable[[], object], count: int, prepare: Callable[[], None] | None = None
    ) -> list[float]:
        """`count` latencies of `launch` in us, each on a cold cache, after `DROPPED` that are not returned.

        `prepare` runs before each launch, outside the timed interval.
        """
        events = [
            (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(count + DROPPED)
        ]
        for _ in range(_HEAD_START):
            self._flush.zero_()
        for start, end in events:
            if prepare is not None:
                prepare()
            self._flush.zero_()
            start.record()
            launch()
            end.record()
        self.wait()
        return [start.elapsed_time(end) * 1000 for start, end in events[DROPPED:]]

    def wait(self) -> None:
        """Until the device has done all it was given; raises what went wrong there."""
        torch.cuda.synchronize(self._device)
