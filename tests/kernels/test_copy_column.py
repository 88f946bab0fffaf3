"""copy_column: bits at odd sizes, which way runs for which memory, and the parts of the host's ways."""

from __future__ import annotations

import ctypes
import random
from typing import Any

import pytest
import torch
from helpers import H200

from tuner import catalog
from tuner.kernels.copy_column.driver import _Copy, copy_column_by_driver
from tuner.kernels.copy_column.packed import _elements, copy_column_packed
from tuner.kernels.copy_column.strided import copy_column_kernel
from tuner.kernels.spec import Config, HostCall, Launch, Problem
from tuner.measure.compile import stood_in
from tuner.search.space import feasible

KERNEL = catalog.load("copy_column")
DRIVER = {"WAY": "driver", "BLOCK": 128, "WIDE": 0, "num_warps": 4, "num_stages": 1}
PACKED = DRIVER | {"WAY": "packed"}


def of(**values: object) -> Problem:
    return KERNEL.signature.problem({"M": 300, "N": 17, **values})


def config(**knobs: Any) -> Config:
    return KERNEL.signature.config({"WAY": "kernel", "BLOCK": 256, "WIDE": 0, "num_warps": 2, "num_stages": 1, **knobs})


@pytest.mark.parametrize("wide", [0, 1])
@pytest.mark.parametrize(("dtype", "bits"), [(torch.float32, torch.int32), (torch.int8, torch.int8)])
@pytest.mark.parametrize(("M", "N", "apart"), [(1, 1, 1), (257, 1, 1), (1311, 3, 1), (300, 17, 2)])
def test_a_column_is_copied_bit_for_bit(
    M: int, N: int, apart: int, dtype: torch.dtype, bits: torch.dtype, wide: int
) -> None:
    whole = torch.randint(-128, 127, (M, N * dtype.itemsize), dtype=torch.int8).view(dtype)
    x, out = whole[:, N // 2], torch.zeros(M, apart, dtype=dtype)
    problem = of(M=M, N=N, dtype="fp32" if dtype.itemsize == 4 else "int8")
    for launch in KERNEL.launch(problem, config(WIDE=wide), {"x": x, "out": out[:, 0]}):
        launch()
    assert torch.equal(out[:, 0].view(bits), x.view(bits))
    assert not out[:, 1:].any()


@pytest.mark.parametrize(
    ("memory", "ways"),
    [("device", {"kernel", "driver"}), ("pinned", {"kernel", "driver", "packed"}), ("pageable", {"driver", "packed"})],
)
def test_each_memory_has_its_ways(memory: str, ways: set[str]) -> None:
    problem = of(M=100_000, memory=memory)
    space = list(feasible(KERNEL, problem, H200.limits))
    assert {config["WAY"] for config in space} == ways
    assert KERNEL.default_config(problem, H200.limits) in space
    assert len(space) <= 40


def test_rows_too_far_apart_for_the_driver_are_left_to_the_others() -> None:
    problem = of(M=2, N=2**29, dtype="fp32", memory="pageable")
    assert [config["WAY"] for config in feasible(KERNEL, problem, H200.limits)] == ["packed"]


@pytest.mark.parametrize(
    ("memory", "knobs", "fn", "captures"),
    [
        ("device", DRIVER, copy_column_by_driver, True),
        ("pinned", DRIVER, copy_column_by_driver, True),
        ("pageable", DRIVER, copy_column_by_driver, False),
        ("pinned", PACKED, copy_column_packed, False),
    ],
)
def test_the_driver_and_the_host_are_called(memory: str, knobs: dict[str, Any], fn: object, captures: bool) -> None:
    (step,) = stood_in(KERNEL, of(memory=memory), KERNEL.signature.config(knobs), H200.limits)
    assert isinstance(step, HostCall)
    assert (step.fn, step.captures) == (fn, captures)
    assert step.args[2:6] == (300, 4, 17, 1)


@pytest.mark.parametrize("knobs", [DRIVER, PACKED])
def test_a_single_element_is_a_plain_copy_at_any_stride(knobs: dict[str, Any]) -> None:
    x, out = (torch.empty(1).as_strided((1,), (stride,)) for stride in (2**33, 2**34))
    values = {"x": x, "out": out, "buffer": torch.empty(1)}
    (step,) = KERNEL.launch(of(M=1, N=1, memory="pinned"), KERNEL.signature.config(knobs), values)
    assert step.args[2:6] == (1, 4, 1, 1)


def test_the_kernel_reads_what_the_card_can_map() -> None:
    (step,) = stood_in(KERNEL, of(memory="pinned"), config(), H200.limits)
    assert isinstance(step, Launch)
    assert step.fn is copy_column_kernel
    assert KERNEL.operands(of(memory="pinned"))["x"].place == "pinned"
    assert step.args[0].is_pinned()


@pytest.mark.parametrize(
    ("values", "way"),
    [
        ({"N": 4096}, "kernel"),
        ({"N": 4096, "memory": "pinned"}, "kernel"),
        ({"N": 4096, "memory": "pageable"}, "packed"),
        ({"N": 1, "memory": "pinned"}, "kernel"),
        ({"N": 1, "memory": "pageable"}, "driver"),
    ],
)
def test_the_default_goes_by_memory_and_adjacent_elements_are_one_copy(values: dict[str, object], way: str) -> None:
    assert KERNEL.default_config(of(M=100_000, **values), H200.limits)["WAY"] == way


@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_the_host_gathers_what_lies_at_an_address(width: int) -> None:
    matrix = torch.randint(-128, 127, (129, 5 * width), dtype=torch.int8)
    rows = matrix.view({1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[width])
    column = rows[:, 3]
    assert torch.equal(_elements(column.data_ptr(), 129, width, 5), column)


def test_a_buffer_that_inference_mode_has_seen_is_written_outside_of_it() -> None:
    column, buffer = torch.ones(129, 5)[:, 3], torch.zeros(129)
    for mode in (True, False):
        with torch.inference_mode(mode):
            _elements(buffer.data_ptr(), 129, 4, 1).copy_(_elements(column.data_ptr(), 129, 4, 5))
    assert buffer.eq(1).all()


def test_the_description_of_a_copy_has_the_drivers_layout() -> None:
    """`CUDA_MEMCPY2D` of cuda.h, on 64 bits."""
    assert ctypes.sizeof(_Copy) == 128
    assert (_Copy.destination.offset, _Copy.width_bytes.offset, _Copy.height.offset) == (56, 112, 120)


def test_problems_of_each_memory_are_drawn_and_fit_a_gigabyte() -> None:
    dice = random.Random(3)
    drawn = [KERNEL.signature.problem(KERNEL.draw(dice)) for _ in range(300)] if KERNEL.draw else []
    assert {problem["memory"] for problem in drawn} == {"device", "pinned", "pageable"}
    assert 60 < sum(problem["M"] % 8 > 0 for problem in drawn) < 140
    assert max(problem["M"] * problem["N"] * 8 for problem in drawn) <= 2**30
