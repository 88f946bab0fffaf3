"""Launches whose programs wait for each other share places if there are more streams than places."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from tuner import catalog
from tuner.kernels.spec import WAITING_STREAMS, Limits
from tuner.launching.waiting import Places, places, wait_for


def test_a_launch_waits_for_the_last_one_of_another_stream_in_its_place() -> None:
    noted: list[str] = []
    shared = Places(most=2, wait_for=lambda before, stream: noted.append(f"{stream} waits for {before}"))
    launch = shared.placed(lambda stream, pointers: noted.append(f"{stream} runs {pointers}"))
    other = shared.placed(lambda stream, pointers: noted.append(f"{stream} runs another"))
    for stream in (10, 20, 10, 20):  # each has a place of its own
        launch(stream, (16,))
    assert noted == ["10 runs (16,)", "20 runs (16,)"] * 2
    noted.clear()
    launch(30, ())
    launch(30, ())
    other(10, ())
    launch(20, ())
    assert noted == [
        *("30 waits for 10", "30 runs ()", "30 runs ()"),
        *("10 waits for 30", "10 runs another"),
        "20 runs ()",
    ]


def test_a_stream_that_is_captured_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[str] = []
    current = ["7"]

    class Stream(str):
        def wait_event(self, event: object) -> None:
            noted.append(f"{self} waits")

    class Event:
        def record(self) -> None:
            noted.append(f"{current[-1]} is recorded")

    @contextmanager
    def on(stream: str) -> Iterator[None]:
        current.append(stream)
        yield
        current.pop()

    monkeypatch.setattr(torch.cuda, "ExternalStream", lambda handle: Stream(handle))
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "stream", on)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: current[-1] == "30")
    for before in (20, 30):
        wait_for(before, 10)
    assert noted == ["20 is recorded", "10 waits"]
    assert current == ["7"]


def test_a_launch_that_raises_leaves_its_place_to_others() -> None:
    def run(stream: int, pointers: tuple[int, ...]) -> None:
        if stream == 10:
            raise RuntimeError("refused")
        noted.append(stream)

    noted: list[int] = []
    launch = Places(most=1, wait_for=lambda before, stream: None).placed(run)
    for stream in (10, 20):
        if stream == 10:
            with pytest.raises(RuntimeError, match="refused"):
                launch(stream, ())
        else:
            launch(stream, ())
    assert noted == [20]


def test_the_places_of_a_card_are_those_of_all_launches() -> None:
    assert places(0) is places(0)
    assert places(0) is not places(1)


def test_kernels_of_ours_that_wait_leave_room_on_the_card() -> None:
    """Programs that wait are at most all but one of a row on each stream."""
    waiting = {op for op in catalog.shipped() if catalog.load(op).waits}
    assert waiting == {"softmax", "rms_norm", "layer_norm"}
    limits = Limits(capability=(9, 0), sm_count=132, shared_bytes=232448)
    for op in waiting:
        kernel = catalog.load(op)
        problem = kernel.signature.problem({"M": 4, "N": 2**18})
        config = kernel.default_config(problem, limits)
        parts = kernel.workspace(problem, config, limits)["found"].shape[1]
        programs = limits.sm_count * (limits.registers_per_sm // (config["num_warps"] * 32 * 128))
        assert WAITING_STREAMS * (parts - 1) < programs
