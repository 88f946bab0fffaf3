"""conv2d of few channels through registers: its device code, run on the CPU, and what it compiles to."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import numpy as np
import pytest
import torch
from forks import printed
from gluon_on_cpu import NUMPY, run
from helpers import A100, H200

from tuner import catalog
from tuner.kernels.spec import Problem
from tuner.measure.stand_ins import StandIn

KERNEL = catalog.load("conv2d")
DIRECT: dict[str, Any] = {
    "VARIANT": "direct", "BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 32, "GROUP_M": 4, "num_warps": 4, "num_stages": 2,
}  # fmt: skip


def problem(B: int, C: int, H: int, W: int, O: int, R: int, **values: object) -> Problem:  # noqa: E741
    return KERNEL.signature.problem({"B": B, "C": C, "H": H, "W": W, "O": O, "R": R, "dtype": "fp16", **values})


STEM = problem(2, 3, 17, 16, 40, 7, stride_h=2, padding_h=3, padding_w=3)


@pytest.mark.parametrize(
    ("asked", "knobs"),
    [
        (STEM, {"BLOCK_K": 16}),
        (STEM, {"BLOCK_M": 128, "GROUP_M": 1}),
        (problem(1, 3, 9, 11, 16, 3, padding_h=1, padding_w=1, bias=True), {"BLOCK_N": 16, "GROUP_M": 1}),
        (problem(3, 4, 10, 9, 72, 2, S=5, stride_h=1, stride_w=3, padding_w=2, dilation_h=2), {"GROUP_M": 1}),
        (problem(2, 5, 33, 32, 33, 4, stride_h=4), {"GROUP_M": 1, "BLOCK_N": 64, "BLOCK_K": 64}),
        (problem(2, 20, 6, 7, 24, 1), {"GROUP_M": 1}),
    ],
)
def test_windows_through_registers_are_right(asked: Problem, knobs: dict[str, Any]) -> None:
    config = KERNEL.signature.config(DIRECT | knobs)
    assert KERNEL.valid(asked, config, H200.limits)
    operands = KERNEL.tensors(asked, config, H200.limits)
    stand_ins = {name: StandIn(operand) for name, operand in operands.items()}
    dice = np.random.default_rng(0)
    memory: dict[str, Any] = {
        name: dice.integers(-2, 3, int(np.prod(operand.shape))).astype(NUMPY[operand.dtype])
        for name, operand in operands.items()
    }
    memory["out"][:] = np.nan
    if asked is STEM:  # the loads of the windows that begin at the next pixel read this one too
        memory["x"][(8 * 16 + 6) * 3 + 2] = np.nan
    (launch,) = KERNEL.launch(asked, config, stand_ins)
    run(launch, {id(stand_ins[name]): memory[name] for name in memory})
    seen = {
        name: torch.from_numpy(memory[name]).as_strided(operand.shape, operand.element_strides)
        for name, operand in operands.items()
    }
    expected = KERNEL.reference(asked, seen, slice(None))["out"].half()
    assert torch.equal(seen["out"].nan_to_num(99.0), expected.nan_to_num(99.0))


def test_few_channels_only() -> None:
    config = KERNEL.signature.config(DIRECT)
    assert KERNEL.valid(STEM, config, H200.limits)
    assert not KERNEL.valid(STEM, config, A100.limits)
    for values in ({"C": 64}, {"dtype": "fp32"}, {"dilation_w": 2}):
        given: dict[str, object] = {**STEM.stated, **values}
        asked = KERNEL.signature.problem(given)
        assert not KERNEL.valid(asked, config, H200.limits)


COMPILED = """
    import re
    from collections import Counter
    from helpers import H200
    from tuner import catalog
    from tuner.measure.compile import compile_launches, set_target

    kernel = catalog.load("conv2d")
    stem = {"B": 32, "C": 3, "H": 224, "O": 64, "R": 7, "stride_h": 2, "padding_h": 3, "padding_w": 3, "dtype": "fp16"}
    config = {"VARIANT": "direct", "BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 8}
    set_target(H200.limits)
    full = kernel.signature.config({**config, "num_warps": 4, "num_stages": 2})
    (code,) = compile_launches(kernel, kernel.signature.problem(stem), full, H200.limits)
    found = re.findall(r"wgmma.mma_async|ld.global.b32", code.asm["ptx"])
    print("found", *(f"{name} {count}" for name, count in sorted(Counter(found).items())))
"""


SPILLED = """
    from helpers import H200
    from tuner import catalog
    from tuner.measure.compile import set_target, stood_in
    from tuner.profiling.compiled import compiled_launch

    kernel = catalog.load("conv2d")
    set_target(H200.limits)
    for width, channels, rows, tile in {cases!r}:
        sizes = {{"B": 4, "C": channels, "H": 60, "W": width, "O": 64, "R": rows, "S": 7}}
        around = {{"padding_h": 3, "padding_w": 3, "stride_h": 2, "stride_w": 2}}
        problem = kernel.signature.problem({{**sizes, **around, "dtype": "fp16"}})
        config = kernel.signature.config({{"VARIANT": "direct", "GROUP_M": 1, "num_warps": 4, "num_stages": 2, **tile}})
        assert kernel.valid(problem, config, H200.limits)
        (launch,) = stood_in(kernel, problem, config, H200.limits)
        print("spilled", compiled_launch(launch, launch.warmup(), loaded=False).spilled_bytes)
"""


def test_windows_in_pairs_up_to_the_limit_and_single_elements_up_to_56_registers_spill_none() -> None:
    """A stem's windows take 80 registers of a thread, in pairs; those of odd rows 56, read one by one."""
    cases = [
        (60, 3, 7, {"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 32}),
        (61, 5, 6, {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}),
    ]
    assert printed(dedent(SPILLED).format(cases=cases)).splitlines()[-2:] == ["spilled 0", "spilled 0"]


def test_windows_are_loaded_two_elements_at_once_to_the_registers_of_the_products() -> None:
    """A thread loads 80 pairs of the elements of 128 windows, 160 each, for 10 steps of two products."""
    assert printed(dedent(COMPILED)).splitlines()[-1] == "found ld.global.b32 80 wgmma.mma_async 20"


@pytest.mark.parametrize(
    ("sizes", "in_turn"),
    [
        ({"B": 32, "C": 3, "H": 224, "O": 16, "R": 3, "stride_h": 2, "padding_h": 1, "padding_w": 1}, 4),
        ({"B": 3, "C": 3, "H": 512, "O": 288, "R": 4, "stride_h": 4}, 4),
    ],
)
def test_programs_of_a_default_leave_each_multiprocessor_several(sizes: dict[str, object], in_turn: int) -> None:
    """The fastest numbers of tiles for each program, among 1, 4, 8 and 16 (H200, 2026-11-30)."""
    found = KERNEL.default_config(KERNEL.signature.problem({"dtype": "bf16", **sizes}), H200.limits)
    assert (found["VARIANT"], found["GROUP_M"]) == ("direct", in_turn)


def test_programs_of_a_default_have_no_more_tiles_than_there_are_rows_of_them() -> None:
    for filters in (4000, 60000):
        asked = problem(1, 5, 12, 12, filters, 3, padding_h=1, padding_w=1)
        assert KERNEL.valid(asked, KERNEL.default_config(asked, H200.limits), H200.limits)
