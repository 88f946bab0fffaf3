"""Timing on the device: one clock for each policy. Host time is kept out of the timed interval, with one exception.

Cold: no operand of a launch is in L2, as in a model whose other layers ran in between. A buffer larger than L2 is
written before each launch. The write also keeps the device busy while the host prepares the launch; without it, host
time is timed. If the host is late nevertheless, since compilers occupy the cores, the launch is timed again with more
writes queued ahead of it.

Events around a launch cost as much as a short kernel. A short kernel is timed in a graph of many launches, each on its
own set of operands, untouched since the buffer was written, so that each launch is cold too.

The exception is a problem with operands on the host. Part of the work may be the host's own there, and users wait for
all of it: each contender of such a problem is timed by the host, from the call to the end of its work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

import torch

from tuner.records import Policy


@dataclass(frozen=True)
class TimingSettings:
    """Constants of the clocks."""

    flush_bytes: int = 256 * 2**20
    """Size of the buffer that flushes L2, in bytes. Source: 5 times an H100's L2; its write takes 60 to 100 us."""
    head_start: int = 2
    """Number of writes queued before the first launch, so that the host is ahead. Source: chosen."""
    attempts: int = 3
    """Number of times late launches are timed before they count as they are. Source: chosen."""
    max_delays: int = 8
    """Largest number of further writes ahead of each launch. Source: a host later than that stays late."""
    graph_launches: int = 50
    """Number of launches in a graph. Source: the events' cost, 2 us, becomes 40 ns a launch."""
    graph_samples: int = 3
    """Number of samples of a graph before it is captured anew. Source: captures differ by 5 to 15 % (H100)."""
    host_flush_bytes: int = 256 * 2**20
    """Size of the buffer that flushes the host's caches, in bytes. Source: chosen; a core reaches 30 to 110 MB."""
    operand_bytes: int = 2**31
    """Memory limit of a graph's operand sets, in bytes. Source: chosen."""


TIMING_SETTINGS = TimingSettings()

Run = Callable[[], object]
"""A callable that launches device work on the current stream."""
Timer = Callable[[int], list[float]]
"""A callable that takes a number of samples and returns their latencies, in us."""


class Clock:
    """Times callables that launch device work, and waits for the device."""

    launches_per_sample = 1
    """Number of launches whose mean is one sample."""
    samples_per_round = 3
    """Number of samples whose median is a contender's latency in one round of a comparison."""
    warmup_samples = 1
    """Number of leading samples dropped in each call of a timer: the first launch loads code and constants."""

    def __init__(self, device: str, settings: TimingSettings = TIMING_SETTINGS) -> None:
        self._device, self._settings = device, settings
        self._flush = torch.empty(settings.flush_bytes // 4, dtype=torch.int32, device=device)
        self._delays = 0
        """Number of writes ahead of each launch besides those of a cold cache; grows while the host is mostly late."""

    def operand_sets(self, bytes: int) -> int:
        """Return the number of operand sets to launch on in turn, for sets of this size in bytes."""
        return 1

    def timer(self, runs: Sequence[Run], restore: Run | None = None) -> Timer:
        """Return a timer of single launches.

        Args:
            runs: the same work on each set of operands.
            restore: run outside the timed interval before each pass over `runs`, and after the last one. So a timer
                leaves operands as it finds them, and no launch finds what another has written: it might wait for ever.
        """
        raise NotImplementedError

    def wait(self) -> None:
        """Block until the device is idle. Raises the errors of the work before."""
        torch.cuda.synchronize(self._device)

    def _timed(self, launch: Run, count: int, before: Sequence[Run]) -> list[float]:
        """Return latencies of `launch`, in us, without the warm-up; `before` runs ahead of each launch."""
        in_time: list[float] = []
        late: list[float] = []
        for _ in range(self._settings.attempts):
            samples = self._queued(launch, count - len(in_time), before)
            in_time += [latency for latency, waited in samples if not waited]
            late = [latency for latency, waited in samples if waited]
            if not late or self._delays == self._settings.max_delays:
                break
            self._delays += 2 * len(late) > len(samples)
        return in_time + late

    def _queued(self, launch: Run, count: int, before: Sequence[Run]) -> list[tuple[float, bool]]:
        """Return `count` latencies, in us, each with whether the device waited for the host before the launch."""
        events = [
            (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
            for _ in range(count + self.warmup_samples)
        ]
        waited = []
        for _ in range(self._settings.head_start):
            self._flush.zero_()
        for start, end in events:
            for prepare in (*[self._delay] * self._delays, *before):
                prepare()
            start.record()
            launch()
            waited.append(start.query())
            end.record()
        self.wait()
        first = self.warmup_samples
        return [
            (start.elapsed_time(end) * 1000, late)
            for (start, end), late in zip(events[first:], waited[first:], strict=True)
        ]

    def _delay(self) -> None:
        """Queue work that keeps the device busy while the host prepares a launch."""
        self._flush.zero_()


class EventClock(Clock):
    """A sample is one launch between two events, on a cold L2."""

    def timer(self, runs: Sequence[Run], restore: Run | None = None) -> Timer:
        before = [*([restore] if restore is not None else []), self._flush.zero_]

        def timer(count: int) -> list[float]:
            samples = self._timed(runs[0], count, before)
            if restore is not None:
                restore()
            return samples

        return timer


class GraphClock(Clock):
    """A sample is the mean of the launches of a graph.

    Cold, each launch has its own set of operands, as far as memory allows, and L2 is flushed before the graph. Warm,
    all launches share one set.
    """

    samples_per_round = 1
    warmup_samples = 0

    def __init__(self, device: str, *, cold: bool, settings: TimingSettings = TIMING_SETTINGS) -> None:
        super().__init__(device, settings)
        self.launches_per_sample = settings.graph_launches
        self._cold = cold

    def _delay(self) -> None:
        if self._cold:  # a warm cache stays warm
            super()._delay()

    def operand_sets(self, bytes: int) -> int:
        if not self._cold:
            return 1
        return max(1, min(self._settings.graph_launches, self._settings.operand_bytes // max(1, bytes)))

    def timer(self, runs: Sequence[Run], restore: Run | None = None) -> Timer:
        launches = runs if self._cold else list(runs) * self._settings.graph_launches
        before = [*([restore] if restore is not None else []), *([self._flush.zero_] if self._cold else [])]

        def timer(count: int) -> list[float]:
            samples: list[float] = []
            while len(samples) < count:
                graph = self._captured(launches)
                latencies = self._timed(graph.replay, min(self._settings.graph_samples, count - len(samples)), before)
                if restore is not None:
                    restore()
                samples += [latency / len(launches) for latency in latencies]
            return samples

        return timer

    def _captured(self, launches: Sequence[Run]) -> torch.cuda.CUDAGraph:
        """Capture the launches as one graph and run it once.

        `torch.cuda.graph` would collect garbage first, which takes 0.1 s a graph.
        """
        graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.Stream(self._device)
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            graph.capture_begin()
            results: list[object] = []
            try:
                for launch in launches:
                    result = launch()
                    results += [result] * self._cold  # a vendor's new outputs each have memory of their own, not in L2
            finally:
                graph.capture_end()
        torch.cuda.current_stream(self._device).wait_stream(stream)
        graph.replay()
        return graph


class HostClock(Clock):
    """A sample is the time of one launch on the host, from the call until the device has done all of its work.

    Cold, the host's caches are flushed too. A launch on another operand set follows, which brings back the code that a
    launch runs, but not the operands. Without it, a copy of 512 bytes took 60 to 140 us (H200, 2026-11-29).
    """

    samples_per_round = 5

    def __init__(self, device: str, *, cold: bool, settings: TimingSettings = TIMING_SETTINGS) -> None:
        super().__init__(device, settings)
        self._host_flush = torch.empty(settings.host_flush_bytes // 4 if cold else 0, dtype=torch.int32)
        self._cold = cold

    def operand_sets(self, bytes: int) -> int:
        return 2 if self._cold else 1

    def timer(self, runs: Sequence[Run], restore: Run | None = None) -> Timer:
        launch, *others = runs

        def timer(count: int) -> list[float]:
            samples = []
            for _ in range(self.warmup_samples + count):
                if restore is not None:
                    restore()
                if self._cold:
                    self._host_flush.zero_()
                    self._flush.zero_()
                for other in others:
                    other()
                self.wait()
                start = perf_counter()
                launch()
                self.wait()
                samples.append((perf_counter() - start) * 1e6)
            if restore is not None:
                restore()
            return samples[self.warmup_samples :]

        return timer


def clock_of(policy: Policy, device: str, *, by_host: bool = False) -> Clock:
    """Return the clock of a timing policy, for a problem that is timed by the host or by the device."""
    if by_host:
        return HostClock(device, cold=policy.cache == "cold")
    if policy.timer == "graph":
        return GraphClock(device, cold=policy.cache == "cold")
    return EventClock(device)
