"""Workspaces in the host's memory: each waits for the end of its last use, and no graph captures one."""

from __future__ import annotations

import gc
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from helpers import H200, toy

from tuner import catalog
from tuner.errors import UsageError
from tuner.kernels.calling import Pointers
from tuner.kernels.spec import HostCall, Operand
from tuner.launching.by_tensor import launched_by_tensor
from tuner.launching.captures import is_captured
from tuner.launching.workspaces import with_workspace

WORK = {"buffer": Operand((3,), "fp32", place="pageable")}


class Event:
    """An event that notes what is asked of it."""

    noted: list[str]

    def record(self) -> None:
        self.noted.append("record")

    def synchronize(self) -> None:
        self.noted.append("wait")


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(Event, "noted", found, raising=False)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    return found


def test_two_buffers_take_turns_on_each_stream(noted: list[str]) -> None:
    got: list[Pointers] = []

    def run(stream: int, pointers: Pointers) -> None:
        noted.append(f"run on {stream}")
        got.append(pointers)

    launch = with_workspace(WORK, run)
    for stream in (1, 1, 1, 2):
        launch(stream, (16,))
    assert noted == [part for stream in (1, 1, 1, 2) for part in ("wait", f"run on {stream}", "record")]
    assert got[0] == got[2] != got[1]
    assert got[3] not in got[:3]


def test_what_an_error_leaves_under_way_is_waited_for(noted: list[str]) -> None:
    def run(stream: int, pointers: Pointers) -> None:
        raise RuntimeError("the second step fails")

    launch = with_workspace(WORK, run)
    with pytest.raises(RuntimeError, match="the second step"):
        launch(1, ())
    assert noted == ["wait", "record"]


def test_buffers_that_are_dropped_wait_for_their_copies(noted: list[str]) -> None:
    launch = with_workspace(WORK, lambda stream, pointers: None)
    launch(1, ())
    noted.clear()
    del launch
    gc.collect()
    assert noted == ["wait", "wait"]


def test_a_workspace_that_cannot_be_made_leaves_nothing_to_wait_for(noted: list[str]) -> None:
    launch = with_workspace({"buffer": Operand((2**60,), "fp32", place="pageable")}, lambda stream, pointers: None)
    with pytest.raises(RuntimeError):
        launch(1, ())
    gc.collect()  # pytest fails for what a destructor raises


def test_no_graph_captures_a_workspace_on_the_host() -> None:
    kernel = catalog.resolve(toy("double"))
    problem = kernel.signature.problem({"N": 100})
    steps = kernel.launch(
        problem, kernel.default_config(problem, H200.limits), {"x": torch.ones(100), "out": torch.ones(100)}
    )
    assert is_captured(steps, {})
    assert not is_captured(steps, WORK)


def test_a_launch_on_tensors_ends_before_its_buffer_is_freed(noted: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    stream = SimpleNamespace(cuda_stream=7, synchronize=lambda: noted.append("wait"))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "device", lambda index: nullcontext())

    def packed(stream: int, buffer: int) -> None:
        noted.append("run")

    double = catalog.resolve(toy("double"))
    kernel = replace(
        double,
        launch=lambda problem, config, tensors: (HostCall(packed, (tensors["buffer"],)),),
        workspace=lambda problem, config, limits: WORK,
    )
    problem = kernel.signature.problem({"N": 100})
    launch = launched_by_tensor(kernel, problem, kernel.default_config(problem, H200.limits), H200.limits, {})
    launch({"x": torch.ones(100), "out": torch.ones(100)})
    assert noted == ["run", "wait"]
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(UsageError, match="a CUDA graph repeats the work of the card alone"):
        launch({"x": torch.ones(100), "out": torch.ones(100)})
