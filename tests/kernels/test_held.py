"""Pinned tensors are kept until the work that reads them has ended."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from tuner.kernels import held
from tuner.kernels.held import hold

current: list[str] = []
"""The current device, if one is set."""


@contextmanager
def on(device: torch.device) -> Iterator[None]:
    current.append(str(device))
    yield
    current.pop()


class Event:
    """An event that ends by hand."""

    made: list[Event]

    def __init__(self) -> None:
        self.ended = False
        self.made.append(self)

    def record(self) -> None:
        assert current == ["cuda:0"]

    def query(self) -> bool:
        return self.ended


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    found: list[Event] = []
    monkeypatch.setattr(Event, "made", found, raising=False)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "device", on)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: current != ["cuda:0"])
    monkeypatch.setattr(held, "_HELD", type(held._HELD)())
    return found


def test_a_tensor_is_kept_until_its_event_has_ended(events: list[Event]) -> None:
    first, second = torch.ones(3), torch.ones(3)
    kept = weakref.ref(first), weakref.ref(second)
    device = torch.device("cuda:0")
    hold(first, device)
    hold(second, device)
    del first, second
    hold(torch.ones(3), device)
    assert None not in [each() for each in kept]
    events[0].ended = True
    hold(torch.ones(3), device)
    assert [each() is None for each in kept] == [True, False]


def test_a_graph_keeps_nothing(events: list[Event]) -> None:
    hold(torch.ones(3), torch.device("cuda:1"))
    assert not held._HELD
