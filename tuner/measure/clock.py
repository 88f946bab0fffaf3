"""Timing on the device, one clock a policy. The host is kept out of the interval.

Cold: every launch finds nothing of its operands in L2, as in a model where other layers ran in between. Before it, a
buffer larger than L2 is written, which also keeps the device busy while the host prepares the launch: without that, a
2.7 us kernel reads 34.5 us (H200, 2026-11-27). Where the host is late all the same, because compilers have the cores,
the launch is timed again with more queued ahead of it: 17 us read 38 so (16 x 4096 x 4096 bf16, H200, 2026-11-28).

Events around a launch cost as much as a short kernel takes. Such a kernel is timed in a graph of many launches, each on
operands of its own that nothing has touched since the buffer was written, so that it is as cold as the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from tuner.records import Policy

_FLUSH_BYTES = 256 * 2**20
"""Five times the L2 of an H100, and long enough to write (60-100 us) for the host to queue a launch meanwhile."""
_HEAD_START = 2
"""Flushes queued before the first launch, so that the host is ahead from the start."""
_TRIES, _MOST_DELAYS = 3, 8
"""How often launches that the device waited for are timed before they count as they are; and how many more writes of
the buffer may become usual ahead of each, 60-100 us every one. A launch that is late behind those waits by itself."""
_GRAPH_LAUNCHES = 50
"""Launches in a graph: what the events cost, 2 us, is then 40 ns of each."""
_GRAPH_SAMPLES = 3
"""Samples of one graph, then it is captured anew: all samples of one may lie 5 to 15 % below what the same launches
take in another (H100, 2026-11-28, kernels of 2 and 5 us)."""
_COPIES_BYTES = 2**31
"""Memory that the operands of a graph's launches may take in all."""

Run = Callable[[], object]
"""Launches device work on the current stream."""
Timer = Callable[[int], list[float]]
"""So many latencies in us."""


class Clock:
    """Times callables that launch device work, and waits for it."""

    launches = 1
    """How many launches a sample is the mean of."""
    visit = 3
    """Samples whose median is a contender's latency in one round of a duel."""
    dropped = 1
    """Leading samples of a timer's call that are thrown away: the first launch loads code and constants."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._flush = torch.empty(_FLUSH_BYTES // 4, dtype=torch.int32, device=device)
        self._delays = 0
        """Writes of the buffer ahead of each launch, beside those that make it cold: the host was mostly late."""

    def copies(self, bytes: int) -> int:
        """How many sets of operands, of so many bytes each, it wants to go round."""
        return 1

    def timer(self, runs: Sequence[Run], restore: Run | None = None) -> Timer:
        """What gives latencies of one launch of `runs`, the same work on each set of operands.

        `restore` runs outside the timed interval, before every time that `runs` do.
        """
        raise NotImplementedError

    def wait(self) -> None:
        """Until the device has done all it was given; raises what went wrong there."""
        torch.cuda.synchronize(self._device)

    def _timed(self, launch: Run, count: int, before: Sequence[Run]) -> list[float]:
        """Latencies of `launch`, after those that are dropped; `before` runs ahead of each."""
        in_time: list[float] = []
        late: list[float] = []
        for _ in range(_TRIES):
            samples = self._queued(launch, count - len(in_time), before)
            in_time += [latency for latency, waited in samples if not waited]
            late = [latency for latency, waited in samples if waited]
            if not late or self._delays == _MOST_DELAYS:
                break
            self._delays += 2 * len(late) > len(samples)
        return in_time + late

    def _queued(self, launch: Run, count: int, before: Sequence[Run]) -> list[tuple[float, bool]]:
        """So many latencies, and whether the device had come to the start before the launch was queued behind it."""
        events = [
            (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
            for _ in range(count + self.dropped)
        ]
        waited = []
        for _ in range(_HEAD_START):
            self._flush.zero_()
        for start, end in events:
            for prepare in (*[self._delay] * self._delays, *before):
                prepare()
            start.record()
            launch()
            waited.append(start.query())
            end.record()
        self.wait()
        return [
            (start.elapsed_time(end) * 1000, late)
            for (start, end), late in zip(events[self.dropped :], waited[self.dropped :], strict=True)
        ]

    def _delay(self) -> None:
        """Keeps the device busy for a while before a launch."""
        self._flush.zero_()


class EventClock(Clock):
    """A sample is one launch between two events, on a cold L2."""

    def timer(self, runs: Sequence[Run], restore: Run | None = None) -> Timer:
        before = [*([restore] if restore is not None else []), self._flush.zero_]
        return lambda count: self._timed(runs[0], count, before)


class GraphClock(Clock):
    """A sample is the mean of the launches of a graph.

    Cold, each launch has its own set of operands, as many sets as memory allows, and the buffer is written before the
    graph. Warm, all launches share one set.
    """

    launches = _GRAPH_LAUNCHES
    visit = 1
    dropped = 0

    def __init__(self, device: str, *, cold: bool) -> None:
        super().__init__(device)
        self._cold = cold

    def _delay(self) -> None:
        if self._cold:  # what is to be warm stays so
            super()._delay()

    def copies(self, bytes: int) -> int:
        return max(1, min(_GRAPH_LAUNCHES, _COPIES_BYTES // max(1, bytes))) if self._cold else 1

    def timer(self, runs: Sequence[Run], restore: Run | None = None) -> Timer:
        launches = runs if self._cold else list(runs) * _GRAPH_LAUNCHES
        before = [*([restore] if restore is not None else []), *([self._flush.zero_] if self._cold else [])]

        def timer(count: int) -> list[float]:
            samples: list[float] = []
            while len(samples) < count:
                graph = self._captured(launches)
                latencies = self._timed(graph.replay, min(_GRAPH_SAMPLES, count - len(samples)), before)
                samples += [latency / len(launches) for latency in latencies]
            return samples

        return timer

    def _captured(self, launches: Sequence[Run]) -> torch.cuda.CUDAGraph:
        """All launches as one graph, run once. `torch.cuda.graph` would collect garbage first: 0.1 s a graph."""
        graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.Stream(self._device)
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            graph.capture_begin()
            try:
                for launch in launches:
                    launch()
            finally:
                graph.capture_end()
        torch.cuda.current_stream(self._device).wait_stream(stream)
        graph.replay()
        return graph


def clock_of(policy: Policy, device: str) -> Clock:
    """The clock that times as `policy` says."""
    if policy.timer == "graph":
        return GraphClock(device, cold=policy.cache == "cold")
    return EventClock(device)
