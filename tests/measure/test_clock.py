"""What a clock does when the host is late, on scripted events: on a card there is no being late at will."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tuner.measure import clock
from tuner.measure.clock import EventClock, GraphClock


class Device:
    """Takes 10 us for a launch it need not wait for, and as long as the host where it must."""

    def __init__(self, host_us: Callable[[], float]) -> None:
        self._host_us = host_us
        self.queued_us = 0.0
        self.writes: list[int] = []
        """Of the buffer, before each launch."""
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
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    scripted = Device(lambda: 40.0)

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
    monkeypatch.setattr(clock, "_FLUSH_BYTES", 4)
    monkeypatch.setattr(torch.Tensor, "zero_", lambda tensor: scripted.write())
    return scripted


def test_a_host_in_time_launches_as_often_as_was_asked(device: Device) -> None:
    assert EventClock("cpu").timer([device.launch])(4) == pytest.approx([10.0] * 4)
    assert device.writes[1:] == [1, 1, 1, 1]  # the first launch is dropped


def test_what_the_device_waited_for_is_timed_again_with_more_ahead_of_it(device: Device) -> None:
    device._host_us = lambda: 100.0
    timer = EventClock("cpu").timer([device.launch])
    assert timer(4) == pytest.approx([10.0] * 4)
    assert device.writes[-4:] == [2, 2, 2, 2]
    before = len(device.writes)
    assert timer(4) == pytest.approx([10.0] * 4)
    assert len(device.writes) - before == 5  # it remembers how much that host needs


def test_only_the_late_ones_are_timed_again(device: Device) -> None:
    hosts = iter([40.0, 40.0, 90.0, 40.0, *[40.0] * 10])
    device._host_us = lambda: next(hosts)
    assert EventClock("cpu").timer([device.launch])(3) == pytest.approx([10.0] * 3)
    assert len(device.writes) == 4 + 2  # three and one, each after one that is dropped


def test_a_host_that_never_is_in_time_counts_as_it_is(device: Device) -> None:
    device._host_us = lambda: 500.0
    latencies = EventClock("cpu").timer([device.launch])(3)
    assert len(latencies) == 3
    assert min(latencies) > 300.0


def test_who_waits_by_itself_does_not_slow_down_the_others_for_ever(device: Device) -> None:
    device._host_us = lambda: 1e6
    timer = EventClock("cpu").timer([device.launch])
    for _ in range(50):
        timer(3)
    assert device.writes[-1] == 1 + clock._MOST_DELAYS
    before = len(device.writes)
    timer(3)
    assert len(device.writes) - before == 4  # once: more in front would change nothing


def test_a_host_that_stumbles_now_and_then_needs_no_more_in_front(device: Device) -> None:
    stumbles = iter(range(10_000))
    device._host_us = lambda: 5000.0 if next(stumbles) % 50 == 49 else 40.0
    timer = EventClock("cpu").timer([device.launch])
    assert all(timer(10) == pytest.approx([10.0] * 10) for _ in range(50))
    assert device.writes[-1] == 1


def test_what_is_warm_is_not_cooled_for_it(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    class Graph:
        replay = staticmethod(device.launch)

    warm = GraphClock("cpu", cold=False)
    monkeypatch.setattr(warm, "_captured", lambda launches: Graph)
    device._host_us = lambda: 100.0
    assert len(warm.timer([device.launch])(2)) == 2
    assert set(device.writes) == {clock._HEAD_START, 0}  # only before the first launch of all
