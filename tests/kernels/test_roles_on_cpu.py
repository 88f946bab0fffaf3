"""Warps with roles compute the product: their device code, run on the CPU."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gluon_on_cpu import NUMPY, run
from helpers import H200

from tuner import catalog
from tuner.kernels.spec import Limits, Operand
from tuner.measure.stand_ins import StandIn

FEW = replace(H200.limits, sm_count=4)
"""A card on which few tiles are several waves."""


def filled(name: str, operand: Operand, dice: np.random.Generator) -> Any:
    """Return the memory of an operand: small whole numbers, whose sums are exact."""
    size = 1 + sum((n - 1) * stride for n, stride in zip(operand.shape, operand.element_strides, strict=True))
    if name in ("arrived", "partials"):
        return np.zeros(size, NUMPY[operand.dtype])
    if name == "out" or name.startswith("aligned"):
        return np.full(size, 99 if operand.dtype == "fp8e4m3" else np.nan, NUMPY[operand.dtype])
    if name.startswith("scale"):
        return dice.choice([0.5, 1.0, 2.0], size).astype(np.float32)
    return dice.integers(-2, 3, size).astype(NUMPY[operand.dtype])


def product(op: str, values: Mapping[str, object], config: Mapping[str, Any], limits: Limits = FEW) -> None:
    """Run a config and compare each element, and the counters in the workspace."""
    kernel = catalog.load(op)
    problem = kernel.signature.problem(values)
    given: dict[str, Any] = {"GROUP_M": 2, "num_warps": 4, "num_stages": 14, **config}
    full = kernel.signature.config({"BLOCK_K": 128 if op == "scaled_gemm" else 64, **given})
    operands = kernel.tensors(problem, full, limits)
    stand_ins = {name: StandIn(operand) for name, operand in operands.items()}
    dice = np.random.default_rng(0)
    memory = {name: filled(name, operand, dice) for name, operand in operands.items()}
    launches = kernel.launch(problem, full, stand_ins)
    (launch,) = (each for each in launches if each.fn.__name__ == "gemm_specialized")
    order = [*range(launch.grid[0])]
    if given.get("SPLIT_K", 1) != 1 and op == "gemm":
        random.Random(0).shuffle(order)  # whichever slice is the last
    for each in launches:
        if each is launch:
            run(launch, {id(stand_ins[name]): memory[name] for name in memory}, order)
        else:
            of_tensor = {id(stand_ins[name]): torch.from_numpy(memory[name]) for name in memory}
            each.fn[each.grid](*(of_tensor.get(id(value), value) for value in each.args), **each.kwargs)

    seen = {
        name: np.lib.stride_tricks.as_strided(
            memory[name], operand.shape, [n * memory[name].itemsize for n in operand.element_strides]
        )
        for name, operand in operands.items()
    }
    a, b = seen["a"].astype(np.float64), seen["b"].astype(np.float64)
    if op == "gemm":
        expected = a @ b + (seen["bias"].astype(np.float64) if problem["bias"] else 0)
    elif problem["scales"] == "tensor":
        expected = a @ b * memory["scale_a"][0] * memory["scale_b"][0]
    else:
        _M, N, K = problem.sizes
        by_a = np.repeat(seen["scale_a"], 128, axis=1)[:, :K]
        by_b = np.repeat(np.repeat(seen["scale_b"], 128, axis=0)[:K], 128, axis=1)[:, :N]
        expected = (a * by_a) @ (b * by_b)
    assert np.array_equal(seen["out"], expected.astype(np.float16))
    assert not memory["arrived"].any()


TILES: list[tuple[dict[str, object], dict[str, Any]]] = [
    ({"M": 200, "N": 168}, {"VARIANT": "specialized", "BLOCK_M": 64, "BLOCK_N": 80, "GROUPS": 1}),
    ({"M": 200, "N": 168}, {"VARIANT": "specialized", "BLOCK_M": 128, "BLOCK_N": 104, "GROUPS": 2}),
    ({"M": 136, "N": 400}, {"VARIANT": "specialized", "BLOCK_M": 128, "BLOCK_N": 192, "GROUPS": 1}),
    ({"M": 400, "N": 264}, {"VARIANT": "specialized", "BLOCK_M": 192, "BLOCK_N": 160, "GROUPS": 3}),
    ({"M": 40, "N": 520}, {"VARIANT": "swapped", "BLOCK_M": 24, "BLOCK_N": 64, "GROUPS": 1}),
    ({"M": 200, "N": 264}, {"VARIANT": "swapped", "BLOCK_M": 104, "BLOCK_N": 128, "GROUPS": 2}),
    ({"M": 248, "N": 200}, {"VARIANT": "swapped", "BLOCK_M": 192, "BLOCK_N": 192, "GROUPS": 3}),
    ({"M": 520, "N": 136}, {"VARIANT": "swapped", "BLOCK_M": 256, "BLOCK_N": 128, "GROUPS": 1}),
]


@pytest.mark.parametrize("layout", ["nt", "nn", "tn", "tt"])
@pytest.mark.parametrize(("sizes", "config"), TILES)
def test_tiles_are_right_in_each_layout(sizes: dict[str, object], config: dict[str, Any], layout: str) -> None:
    """In one wave, with sums stored through the ring, or in several."""
    right_across_k = layout[0] == "t" if config["VARIANT"] == "swapped" else layout[1] == "n"
    if right_across_k and min(config["BLOCK_M"], config["BLOCK_N"]) % 16:
        pytest.skip("the last part is less than 32 bytes across K")
    values = {**sizes, "K": 328, "dtype": "fp16", "layout": layout, "bias": layout == "nt"}
    if layout in ("nt", "tn"):
        product("gemm", values, config)
    if layout in ("nt", "nn", "tt"):
        product("gemm", values, {**config}, H200.limits)


def across_k(config: dict[str, Any]) -> str:
    """Return the layout in which only the left factor lies across K."""
    return "nn" if config["VARIANT"] == "swapped" else "tt"


@pytest.mark.parametrize("left_across_k", [False, True])
@pytest.mark.parametrize(("sizes", "config"), [tile for tile in TILES if tile[1]["BLOCK_N"] != 256])
def test_one_product_for_all_columns_is_right(
    sizes: dict[str, object], config: dict[str, Any], left_across_k: bool
) -> None:
    rows = config["BLOCK_N" if config["VARIANT"] == "swapped" else "BLOCK_M"]
    wide = {**config, "WIDE": True, "GROUPS": min(3, rows // 64)}
    layout = across_k(config) if left_across_k else "nt"
    values = {**sizes, "K": 328, "dtype": "fp16", "layout": layout, "bias": True}
    product("gemm", values, wide)
    product("gemm", values, {**wide}, H200.limits)


@pytest.mark.parametrize("layout", ["nt", "nn", "tt"])
@pytest.mark.parametrize("depth", [64, 328, 1048])
@pytest.mark.parametrize(
    ("sizes", "config"),
    [
        ({"M": 200, "N": 520}, {"VARIANT": "specialized", "BLOCK_M": 64, "BLOCK_N": 80}),
        ({"M": 264, "N": 400}, {"VARIANT": "specialized", "BLOCK_M": 128, "BLOCK_N": 176}),
        ({"M": 400, "N": 264}, {"VARIANT": "swapped", "BLOCK_M": 112, "BLOCK_N": 128}),
        ({"M": 392, "N": 264}, {"VARIANT": "swapped", "BLOCK_M": 104, "BLOCK_N": 64, "WIDE": True}),
        ({"M": 264, "N": 400}, {"VARIANT": "specialized", "BLOCK_M": 128, "BLOCK_N": 176, "WIDE": True}),
    ],
)
def test_groups_take_tiles_in_turn(sizes: dict[str, object], config: dict[str, Any], layout: str, depth: int) -> None:
    """With fewer steps than stages, and with more; some programs have an odd number of tiles."""
    right_across_k = layout == ("tt" if config["VARIANT"] == "swapped" else "nn")
    if right_across_k and (config.get("WIDE") or min(config["BLOCK_M"], config["BLOCK_N"]) % 16):
        pytest.skip("one product for all columns reads right factors that lie along K")
    values = {**sizes, "K": depth, "dtype": "fp16", "layout": layout, "bias": True}
    product("gemm", values, {**config, "GROUPS": 1, "PINGPONG": True})


@pytest.mark.parametrize("layout", ["nt", "nn", "tn", "tt"])
@pytest.mark.parametrize(("sizes", "config"), [TILES[2], TILES[5]])
def test_operands_that_are_not_aligned_are_copied(sizes: dict[str, int], config: dict[str, Any], layout: str) -> None:
    odd = {name: size - 3 for name, size in sizes.items()}
    product("gemm", {**odd, "K": 325, "dtype": "fp16", "layout": layout, "bias": True}, {**config, "ALIGN": True})


@pytest.mark.parametrize("slices", [2, 3])
@pytest.mark.parametrize(("sizes", "config"), TILES[:7])
@pytest.mark.parametrize("wide", [False, True])
def test_slices_are_added_whichever_arrives_last(
    sizes: dict[str, object], config: dict[str, Any], slices: int, wide: bool
) -> None:
    rows = config["BLOCK_N" if config["VARIANT"] == "swapped" else "BLOCK_M"]
    more = {"WIDE": True, "GROUPS": min(3, rows // 64)} if wide else {}
    values = {**sizes, "K": 840, "dtype": "fp16", "layout": "nt", "bias": True}
    product("gemm", values, {**config, **more, "SPLIT_K": slices}, H200.limits)


@pytest.mark.parametrize("tile", [(128, 128), (128, 192), (256, 64)])
def test_shared_tiles_are_joined(tile: tuple[int, int]) -> None:
    """Five tiles or more, for four programs."""
    config = {"VARIANT": "stream_k", "BLOCK_M": tile[0], "BLOCK_N": tile[1], "GROUPS": 2}
    product("gemm", {"M": 400, "N": 392, "K": 328, "dtype": "fp16", "layout": "nn", "bias": True}, config)


@pytest.mark.parametrize(
    ("values", "config"),
    [
        ({}, {"VARIANT": "specialized", "BLOCK_M": 128, "BLOCK_N": 256, "GROUPS": 2}),
        ({}, {"VARIANT": "specialized", "BLOCK_M": 64, "BLOCK_N": 80, "GROUPS": 1}),
        ({"accumulate": "fast"}, {"VARIANT": "specialized", "BLOCK_M": 192, "BLOCK_N": 96, "GROUPS": 3}),
        ({"accumulate": "fast"}, {"VARIANT": "swapped", "BLOCK_M": 104, "BLOCK_N": 192, "GROUPS": 3}),
        ({"accumulate": "fast"}, {"VARIANT": "swapped", "BLOCK_M": 104, "BLOCK_N": 192, "GROUPS": 3, "WIDE": True}),
        ({}, {"VARIANT": "swapped", "BLOCK_M": 40, "BLOCK_N": 64, "GROUPS": 1}),
        ({}, {"VARIANT": "specialized", "BLOCK_M": 64, "BLOCK_N": 80, "GROUPS": 1, "WIDE": True}),
        ({}, {"VARIANT": "specialized", "BLOCK_M": 128, "BLOCK_N": 176, "GROUPS": 2, "WIDE": True}),
        ({}, {"VARIANT": "swapped", "BLOCK_M": 96, "BLOCK_N": 192, "GROUPS": 3, "WIDE": True}),
        ({}, {"VARIANT": "swapped", "BLOCK_M": 32, "BLOCK_N": 64, "GROUPS": 1, "WIDE": True, "BLOCK_K": 256}),
        ({"scales": "block"}, {"VARIANT": "specialized", "BLOCK_M": 128, "BLOCK_N": 128, "GROUPS": 2}),
        ({"scales": "block"}, {"VARIANT": "specialized", "BLOCK_M": 192, "BLOCK_N": 64, "GROUPS": 3}),
        ({}, {"VARIANT": "specialized", "BLOCK_M": 128, "BLOCK_N": 128, "GROUPS": 2, "SPLIT_K": 2}),
        ({"scales": "block"}, {"VARIANT": "specialized", "BLOCK_M": 128, "BLOCK_N": 128, "GROUPS": 2, "SPLIT_K": 2}),
        ({"accumulate": "fast"}, {"VARIANT": "swapped", "BLOCK_M": 48, "BLOCK_N": 64, "GROUPS": 1, "SPLIT_K": 2}),
        ({"accumulate": "fast"}, {"VARIANT": "swapped", "BLOCK_M": 48, "BLOCK_N": 64, "GROUPS": 1, "BLOCK_K": 256}),
    ],
)
@pytest.mark.parametrize("limits", [FEW, H200.limits], ids=["waves", "one wave"])
def test_scales_are_applied_to_tiles(values: dict[str, object], config: dict[str, Any], limits: Limits) -> None:
    product("scaled_gemm", {"M": 204, "N": 264, "K": 528, "out_dtype": "fp16", **values}, config, limits)


@pytest.mark.parametrize(
    ("values", "config", "limits"),
    [
        ({}, {"VARIANT": "specialized", "BLOCK_M": 64, "BLOCK_N": 80, "GROUPS": 1}, FEW),
        ({"accumulate": "fast"}, {"VARIANT": "swapped", "BLOCK_M": 40, "BLOCK_N": 128, "GROUPS": 2}, H200.limits),
        ({"scales": "block"}, {"VARIANT": "specialized", "BLOCK_M": 64, "BLOCK_N": 64, "GROUPS": 1}, FEW),
    ],
)
def test_operands_in_8_bits_that_are_not_aligned_are_copied(
    values: dict[str, object], config: dict[str, Any], limits: Limits
) -> None:
    odd = {"M": 75, "N": 173, "K": 139, "out_dtype": "fp16", **values}
    product("scaled_gemm", odd, {**config, "ALIGN": True}, limits)


@pytest.mark.parametrize(
    ("values", "config"),
    [
        ({}, {"VARIANT": "specialized", "BLOCK_M": 64, "BLOCK_N": 80, "GROUPS": 1, "SPLIT_K": 3}),
        ({}, {"VARIANT": "swapped", "BLOCK_M": 104, "BLOCK_N": 128, "GROUPS": 2, "WIDE": True, "SPLIT_K": 3}),
        ({"scales": "block"}, {"VARIANT": "specialized", "BLOCK_M": 128, "BLOCK_N": 128, "GROUPS": 2, "SPLIT_K": 4}),
        (
            {"accumulate": "fast"},
            {"VARIANT": "swapped", "BLOCK_M": 48, "BLOCK_N": 64, "GROUPS": 1, "WIDE": True, "SPLIT_K": 3},
        ),
    ],
)
def test_slices_of_8_bit_products_are_added(values: dict[str, object], config: dict[str, Any]) -> None:
    product("scaled_gemm", {"M": 140, "N": 264, "K": 1040, "out_dtype": "fp16", **values}, config, H200.limits)
