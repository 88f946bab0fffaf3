"""8-bit products whose rows are not aligned to 16 bytes: operands are copied to rows that are."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from helpers import H200, RTX_4090

from tuner import catalog
from tuner.kernels.shared.product_rows import padded, unaligned
from tuner.kernels.spec import Problem
from tuner.measure import check, tensors
from tuner.measure.stand_ins import StandIn
from tuner.records import Device

KERNEL = catalog.load("scaled_gemm")
TILES: dict[str, Any] = {
    "VARIANT": "tiles", "BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 128, "GROUP_M": 1, "num_warps": 4, "num_stages": 3,
    "ALIGN": True,
}  # fmt: skip
PERSISTENT = {**TILES, "VARIANT": "persistent"}


def problem(M: int, N: int, K: int, **attributes: object) -> Problem:
    return KERNEL.signature.problem({"M": M, "N": N, "K": K, **attributes})


def launches(asked: Problem, config: dict[str, Any], **strides: tuple[int, int]) -> list[str]:
    """Return the names of the functions that are launched with tensors of these strides."""
    full = KERNEL.signature.config(config)
    operands = dict(KERNEL.tensors(asked, full, H200.limits))
    operands |= {name: replace(operands[name], strides=of) for name, of in strides.items()}
    stand_ins = {name: StandIn(operand) for name, operand in operands.items()}
    return [launch.fn.fn.__name__ for launch in KERNEL.launch(asked, full, stand_ins)]


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # rows past the end, never stored
@pytest.mark.parametrize(
    ("sizes", "scales", "config"),
    [
        ((35, 67, 139), "tensor", PERSISTENT),
        ((35, 67, 144), "tensor", PERSISTENT),
        ((35, 67, 139), "tensor", TILES),
        ((35, 72, 140), "block", TILES),
        ((35, 72, 140), "block", {**TILES, "ALIGN": False}),
        ((35, 67, 139), "tensor", {**TILES, "BLOCK_M": 16, "BLOCK_N": 64}),
    ],
)
def test_products_of_rows_that_are_not_aligned_are_right(
    sizes: tuple[int, int, int], scales: str, config: dict[str, Any]
) -> None:
    """Under the interpreter, which has no products of 8-bit floats: the same values in 16 bits."""
    asked = problem(*sizes, scales=scales, out_dtype="fp16")
    full = KERNEL.signature.config(config)
    operands = KERNEL.operands(asked)
    values = tensors.allocate(operands, "cpu")
    tensors.draw(operands, values, seed=1)
    tensors.poison(operands, values)
    work = tensors.workspace(KERNEL.workspace(asked, full, H200.limits), "cpu")
    work = {name: each.half() if each.dtype == torch.float8_e4m3fn else each for name, each in work.items()}
    wide = {"a": values["a"].half(), "b": values["b"].t().half().t()}
    for launch in KERNEL.launch(asked, full, {**values, **wide, **work}):
        launch()
    assert check.error(KERNEL, asked, values, {"out": values["out"]}) <= torch.finfo(torch.float16).eps


def test_only_what_is_not_aligned_is_copied() -> None:
    odd = problem(67, 131, 77)
    assert unaligned(odd) == ("a", "b", "out")
    assert launches(odd, PERSISTENT) == ["copy_rows", "scaled_persistent", "copy_rows"]
    assert launches(odd, PERSISTENT, out=(136, 1)) == ["copy_rows", "scaled_persistent"]
    assert launches(odd, PERSISTENT, a=(80, 1), b=(1, 80), out=(136, 1)) == ["scaled_persistent"]
    assert launches(odd, TILES) == ["copy_rows", "scaled_tiles"]
    wide = problem(64, 68, 80)
    assert unaligned(wide) == ("out",)  # rows of 136 bytes
    assert launches(wide, PERSISTENT) == ["scaled_persistent", "copy_rows"]
    assert launches(wide, PERSISTENT, a=(81, 1)) == ["scaled_tiles"]  # has no room in the workspace


def test_scales_of_blocks_are_copied_to_aligned_columns_for_warps_with_roles() -> None:
    """Also if they lie by rows."""
    roles = {**TILES, "VARIANT": "specialized", "BLOCK_M": 64, "BLOCK_N": 64, "GROUPS": 1, "num_stages": 14}
    asked = problem(203, 4096, 4096, scales="block")
    assert launches(asked, roles) == ["copy_rows", "gemm_specialized"]
    assert launches(asked, roles, scale_a=(1, 204)) == ["gemm_specialized"]
    assert launches(asked, roles, scale_a=(32, 1)) == ["copy_rows", "gemm_specialized"]
    odd = problem(203, 4097, 4099, scales="block")
    assert launches(odd, roles) == ["copy_rows", "copy_rows", "gemm_specialized", "copy_rows"]
    full = KERNEL.signature.config(PERSISTENT)
    assert not KERNEL.valid(asked, full, H200.limits)
    assert KERNEL.valid(odd, full, H200.limits)
    assert "aligned_scale_a" not in KERNEL.workspace(odd, full, H200.limits)


def test_only_unaligned_problems_have_the_choice() -> None:
    """Variants with descriptors require ALIGN, `tiles` allows both if a factor is copied, `vectors` never copies."""

    roles = {**TILES, "BLOCK_N": 64, "GROUPS": 1, "num_stages": 14}
    configs: dict[str, dict[str, Any]] = {
        "tiles": TILES,
        "persistent": PERSISTENT,
        "specialized": {**roles, "VARIANT": "specialized", "BLOCK_M": 64},
        "swapped": {**roles, "VARIANT": "swapped", "BLOCK_M": 8},
        "vectors": {**TILES, "VARIANT": "vectors", "BLOCK_M": 1, "BLOCK_N": 4, "BLOCK_K": 1024, "num_stages": 1},
    }

    def ways(asked: Problem, card: Device) -> set[tuple[str, bool]]:
        tried = product(configs.items(), (False, True))
        asked_of = (({**config, "ALIGN": align}, name, align) for (name, config), align in tried)
        return {
            (name, align)
            for config, name, align in asked_of
            if KERNEL.valid(asked, KERNEL.signature.config(config), card.limits)
        }

    described = ("persistent", "specialized", "swapped")
    both = {("tiles", False), ("tiles", True)}
    assert ways(problem(64, 6800, 3001), H200) == {*both, *((variant, True) for variant in described)}
    assert ways(problem(64, 6800, 3008), H200) == {(variant, False) for variant in ("tiles", *described)}
    assert ways(problem(64, 6800, 3001), RTX_4090) == both
    assert ways(problem(64, 6801, 3008), RTX_4090) == {("tiles", False)}
    few = ways(problem(1, 6801, 3001), H200)
    assert ("vectors", False) in few
    assert ("vectors", True) not in few


@pytest.mark.parametrize(("vec", "K"), [(16, 160), (8, 168), (4, 172), (1, 171)])
def test_as_many_elements_are_loaded_at_once_as_rows_are_multiples_of(vec: int, K: int) -> None:
    asked = problem(128, 144, K)
    config = KERNEL.signature.config({**TILES, "ALIGN": False})
    stand_ins = {name: StandIn(operand) for name, operand in KERNEL.tensors(asked, config, H200.limits).items()}
    (launch,) = KERNEL.launch(asked, config, stand_ins)
    assert [launch.kwargs[name] for name in ("A_VEC", "B_VEC", "OUT_M_VEC", "OUT_N_VEC")] == [vec, vec, 1, 8]


@pytest.mark.parametrize("sizes", [(115, 2303, 1141), (1664, 23289, 3318), (4097, 4097, 4097)])
def test_large_products_with_odd_rows_are_copied_first(sizes: tuple[int, int, int]) -> None:
    """Loaded byte by byte, they take several times as long."""
    asked = problem(*sizes)
    assert KERNEL.estimate is not None
    default = KERNEL.default_config(asked, H200.limits)
    assert default["ALIGN"]
    cost = KERNEL.estimate(asked, default, H200.limits)
    assert 0 < cost.parts["copies"] < cost.us
    assert cost.us > KERNEL.estimate(padded(asked), {**default, "ALIGN": False}, H200.limits).us
    as_it_lies = {**TILES, "BLOCK_M": 64, "BLOCK_N": 128, "num_stages": 4, "ALIGN": False}
    full = KERNEL.signature.config(as_it_lies)
    assert KERNEL.estimate(asked, full, H200.limits).us > 3 * cost.us


def test_small_products_are_computed_as_they_lie() -> None:
    for sizes in ((17, 17, 17), (1, 4097, 4099)):
        assert not KERNEL.default_config(problem(*sizes), H200.limits)["ALIGN"]
