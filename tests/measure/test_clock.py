"""Clocks and a late host, with scripted events: on a card, the host cannot be made late on purpose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from time import sleep
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tuner.measure.clock import Clock, EventClock, GraphClock, HostClock, TimingSettings, clock_of
from tuner.records import POLICIES

SMALL = TimingSettings(flush_bytes=4)


class ScriptedDevice:
    """A device that takes 10 us for a launch, and longer if it waits for the host."""

    def __init__(self, host_us: Callable[[], float]) -> None:
        self._host_us = host_us
        self.queued_us = 0.0
        self.writes: list[int] = []
        """Number of writes of the buffer before each launch."""
        self._written = 0
        self.late = False
        self.latency_us = 0.0

    def write(self) -> None:
        self.queued_us = min(self.queued_us, 60.0) + 60.0
        self._written += 1

    def launch(self) -> None:
        host_us = self._host_us()
        self.late = host_us > self.queued_us
        self.latency_us = 10.0 + max(0.0, host_us - self.queued_us)
        self.queued_us = 0.0
        self.writes.append(self._written)
        self._written = 0


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> ScriptedDevice:
    scripted = ScriptedDevice(lambda: 40.0)

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing
            self._latency_us = 0.0

        def record(self) -> None:
            self._latency_us = scripted.latency_us

        def query(self) -> bool:
            return scripted.late

        def elapsed_time(self, end: Event) -> float:
            return end._latency_us / 1000

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(torch.Tensor, "zero_", lambda tensor: scripted.write())
    return scripted


def test_a_host_in_time_launches_once_a_sample(device: ScriptedDevice) -> None:
    assert EventClock("cpu", SMALL).timer([device.launch])(4) == pytest.approx([10.0] * 4)
    assert device.writes[1:] == [1, 1, 1, 1]  # the first launch is dropped


def test_late_launches_are_timed_again_with_more_writes_ahead(device: ScriptedDevice) -> None:
    device._host_us = lambda: 100.0
    timer = EventClock("cpu", SMALL).timer([device.launch])
    assert timer(4) == pytest.approx([10.0] * 4)
    assert device.writes[-4:] == [2, 2, 2, 2]
    before = len(device.writes)
    assert timer(4) == pytest.approx([10.0] * 4)
    assert len(device.writes) - before == 5  # the number of writes ahead is kept


def test_only_late_launches_are_timed_again(device: ScriptedDevice) -> None:
    hosts = iter([40.0, 40.0, 90.0, 40.0, *[40.0] * 10])
    device._host_us = lambda: next(hosts)
    assert EventClock("cpu", SMALL).timer([device.launch])(3) == pytest.approx([10.0] * 3)
    assert len(device.writes) == 4 + 2  # three and one, each after a warm-up


def test_launches_that_stay_late_count(device: ScriptedDevice) -> None:
    device._host_us = lambda: 500.0
    latencies = EventClock("cpu", SMALL).timer([device.launch])(3)
    assert len(latencies) == 3
    assert min(latencies) > 300.0


def test_the_number_of_writes_ahead_is_limited(device: ScriptedDevice) -> None:
    device._host_us = lambda: 1e6
    timer = EventClock("cpu", SMALL).timer([device.launch])
    for _ in range(50):
        timer(3)
    assert device.writes[-1] == 1 + SMALL.max_delays
    before = len(device.writes)
    timer(3)
    assert len(device.writes) - before == 4  # one attempt: more writes ahead are not allowed


def test_rarely_late_launches_add_no_writes(device: ScriptedDevice) -> None:
    delays = iter(range(10_000))
    device._host_us = lambda: 5000.0 if next(delays) % 50 == 49 else 40.0
    timer = EventClock("cpu", SMALL).timer([device.launch])
    assert all(timer(10) == pytest.approx([10.0] * 10) for _ in range(50))
    assert device.writes[-1] == 1


def test_a_warm_cache_is_not_flushed_for_a_late_host(device: ScriptedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    class Graph:
        replay = staticmethod(device.launch)

    warm = GraphClock("cpu", cold=False, settings=SMALL)
    monkeypatch.setattr(warm, "_captured", lambda launches: Graph)
    device._host_us = lambda: 100.0
    assert len(warm.timer([device.launch])(2)) == 2
    assert set(device.writes) == {SMALL.head_start, 0}  # only before the first launch of all


class Replayed(GraphClock):
    """A clock whose graphs are the launches themselves, each run once after its capture."""

    def _captured(self, launches: Sequence[Callable[[], object]]) -> Any:
        def replay() -> None:
            for launch in launches:
                launch()

        replay()
        return SimpleNamespace(replay=replay)


@pytest.mark.parametrize("clock", [EventClock("cpu", SMALL), Replayed("cpu", cold=True, settings=SMALL)])
def test_no_launch_finds_what_another_has_written(clock: Clock, device: ScriptedDevice) -> None:
    """A kernel that takes a lock waits for ever on one that is taken, also after the timer of another config."""
    taken = False

    def launch() -> None:
        nonlocal taken
        assert not taken
        taken = True
        device.launch()

    def restore() -> None:
        nonlocal taken
        taken = False

    for timer in (clock.timer([launch], restore), clock.timer([launch], restore)):
        for count in (3, 7):
            assert len(timer(count)) == count
        assert not taken


@pytest.mark.parametrize("cold", [True, False])
def test_the_host_times_from_the_call_to_the_end_on_the_device(device: ScriptedDevice, cold: bool) -> None:
    """Writes that make caches cold, what restores operands and a launch on others come before; the first is dropped."""
    done: list[str] = []

    def launch() -> None:
        done.append("launch")
        sleep(0.002)

    clock = HostClock("cpu", cold=cold, settings=replace(SMALL, host_flush_bytes=4))
    runs = [launch, lambda: done.append("other")][: clock.operand_sets(100)]
    samples = clock.timer(runs, lambda: done.append("restore"))(3)
    assert len(samples) == 3
    assert all(2000 <= sample < 1e6 for sample in samples)
    assert done == [*["restore", *["other"] * cold, "launch"] * 4, "restore"]
    assert device._written == (8 if cold else 0)


def test_a_problem_on_the_host_is_timed_by_it_under_each_policy() -> None:
    for policy in POLICIES.values():
        assert isinstance(clock_of(policy, "cpu", by_host=True), HostClock)
