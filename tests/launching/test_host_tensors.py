"""Launches on tensors in the host's memory, without a GPU: checks, keys, addresses, and what a graph captures."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from helpers import H200

from tuner import catalog
from tuner.client import Client
from tuner.errors import UsageError
from tuner.kernels.calling import Pointers, Tensors
from tuner.kernels.spec import HostCall, Kernel, Problem
from tuner.launching.arguments import arranged
from tuner.launching.captures import or_captured, substitute
from tuner.launching.inferred import check_strides, problem_of
from tuner.launching.launch import Launches, Ready
from tuner.launching.launch_source import source
from tuner.measure.compile import stood_in

KERNEL = catalog.load("copy_column")
MATRIX, OUT = torch.arange(300.0).reshape(100, 3), torch.zeros(100)
COLUMN = MATRIX[:, 1]


def ready(client: Client, kernel: Kernel, problem: Problem, tensors: Tensors) -> Ready:
    return Ready(None, lambda given: given["out"].copy_(given["x"]))


@pytest.fixture
def launches() -> Launches:
    return Launches(Client(), ready_of=ready, runs_on="cpu")


def test_pageable_memory_is_taken_if_the_problem_says_so(launches: Launches) -> None:
    launches.launch("copy_column", x=COLUMN, out=OUT, memory="pageable")
    assert torch.equal(OUT, COLUMN)


def test_pageable_memory_is_refused_where_it_must_be_pinned(launches: Launches) -> None:
    with pytest.raises(UsageError, match=r"takes x in pinned memory here, and it is pageable; .* x\.pin_memory\(\)"):
        launches.launch("copy_column", x=COLUMN, out=OUT, memory="pinned")


def test_a_tensor_of_a_device_is_refused_where_one_on_the_host_is_taken(launches: Launches) -> None:
    with pytest.raises(UsageError, match="takes x in the memory of the host here, not on meta; correct the attribute"):
        launches.launch("copy_column", x=COLUMN.to("meta"), out=OUT, memory="pageable")


def test_the_length_of_a_row_is_read_from_the_stride() -> None:
    tensors = {"x": COLUMN, "out": OUT}
    problem = problem_of(KERNEL, tensors, {})
    assert problem.text == "copy_column M=100 N=3 dtype=fp32"
    check_strides(KERNEL, problem, {"x": COLUMN, "out": torch.zeros(200)[::2]}, H200.limits)


def test_the_key_tells_pinned_from_pageable() -> None:
    """On a device it is the index; a pinned tensor cannot be made without a GPU."""
    names: dict[str, Any] = {}
    exec(source(("x",), (), ()), names)
    assert names["key_of"]({"x": COLUMN})[3] == -2
    assert "a0.is_pinned() - 2" in source(("x",), (), ())


def test_a_call_gets_addresses_in_the_places_of_its_tensors() -> None:
    call = HostCall(lambda stream, *args: None, (OUT, 7, COLUMN))
    assert arranged(call, [COLUMN, OUT])((16, 32)) == (32, 7, 16)


PACKED = KERNEL.signature.config({"WAY": "packed", "BLOCK": 128, "WIDE": 0, "num_warps": 4, "num_stages": 1})


def test_what_the_host_packs_is_captured_as_a_copy_by_the_driver() -> None:
    problem = KERNEL.signature.problem({"M": 100, "N": 3, "memory": "pinned"})
    other = substitute(KERNEL, problem, PACKED, H200.limits)
    assert other is not None
    assert other["WAY"] == "driver"
    (step,) = stood_in(KERNEL, problem, other, H200.limits)
    assert isinstance(step, HostCall)


@pytest.fixture
def capturing(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    state = [False]
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: state[0])
    return state


def test_a_capture_runs_the_other_config_and_says_so_once(
    capturing: list[bool], caplog: pytest.LogCaptureFixture
) -> None:
    ran: list[str] = []

    def noted(name: str) -> Any:
        def run(stream: int, pointers: Pointers) -> None:
            ran.append(name)

        return run

    problem = KERNEL.signature.problem({"M": 100, "N": 3, "memory": "pinned"})
    other = substitute(KERNEL, problem, PACKED, H200.limits)
    run = or_captured(noted("packed"), noted("driver"), problem, PACKED, other)
    with caplog.at_level(logging.WARNING, "tuner"):
        for capturing[0] in (False, True, True, False):
            run(0, (16, 32))
    assert ran == ["packed", "driver", "driver", "packed"]
    (record,) = caplog.records
    assert "a CUDA graph captures BLOCK=128 WAY=driver" in record.message


def test_pageable_memory_cannot_be_captured(capturing: list[bool]) -> None:
    problem = KERNEL.signature.problem({"M": 100, "N": 3, "memory": "pageable"})
    assert substitute(KERNEL, problem, PACKED, H200.limits) is None
    run = or_captured(lambda stream, pointers: None, None, problem, PACKED, None)
    run(0, (16, 32))
    capturing[0] = True
    with pytest.raises(UsageError, match="a CUDA graph repeats the work of the card alone, and copy_column M=100 N=3"):
        run(0, (16, 32))
