"""Estimates of conv2d: they order measured configs as the card did, and count what windows share once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import H200, drawn

from tuner import catalog
from tuner.kernels.conv2d.estimate import estimate, read_bytes, sizes
from tuner.kernels.conv2d.layer import layer
from tuner.kernels.spec import Config, Problem

KERNEL = catalog.load("conv2d")
PAD = {"padding_h": 1, "padding_w": 1}


def problem(B: int, C: int, H: int, W: int, O: int, R: int, **values: object) -> Problem:  # noqa: E741
    return KERNEL.signature.problem({"B": B, "C": C, "H": H, "W": W, "O": O, "R": R, "dtype": "fp16", **values})


def config(variant: str, block_m: int, block_n: int, block_k: int, **knobs: Any) -> Config:
    tile: dict[str, Any] = {"VARIANT": variant, "BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    return KERNEL.signature.config({**tile, "GROUP_M": 1, "num_warps": 4, **knobs})


MEASURED = [
    (
        problem(32, 128, 28, 28, 128, 3, **PAD),
        [
            (16.6, config("boxes", 64, 128, 64, GROUP_M=4, num_stages=3)),
            (22.9, config("specialized", 256, 64, 64, GROUP_M=8, num_stages=4)),
            (38.7, config("tiles", 128, 128, 16, GROUP_M=4, num_stages=5)),
            (63.5, config("boxes", 256, 128, 32, PATCH=2, SPLIT_K=4, num_warps=8, num_stages=6)),
        ],
    ),
    (
        problem(32, 1024, 14, 14, 256, 1),
        [
            (9.6, config("boxes", 128, 128, 64, GROUP_M=8, num_stages=5)),
            (14.5, config("specialized", 128, 256, 64, GROUP_M=8, num_stages=4)),
            (32.4, config("boxes", 128, 128, 64, GROUP_M=8, SPLIT_K=3, num_stages=5)),
            (60.0, config("tiles", 256, 64, 16, SPLIT_K=4, num_warps=8, num_stages=2)),
        ],
    ),
    (
        problem(96, 640, 40, 40, 320, 1, stride_h=2, dtype="bf16"),
        [
            (34.2, config("specialized", 128, 160, 64, GROUP_M=8, num_stages=5)),
            (46.6, config("boxes", 256, 64, 64, GROUP_M=4, num_stages=4)),
            (81.8, config("tiles", 256, 64, 16, GROUP_M=16, num_stages=3)),
            (138.8, config("tiles", 128, 32, 16, num_warps=8, num_stages=5)),
        ],
    ),
]
"""Layers with configs in the order of their latencies in a graph, in us (H200, 2026-11-30)."""


@pytest.mark.parametrize(("asked", "measured"), MEASURED, ids=lambda given: getattr(given, "text", ""))
def test_estimates_order_configs_as_the_card_did(asked: Problem, measured: list[tuple[float, Config]]) -> None:
    estimates = [estimate(asked, each, H200.limits).us for _, each in measured]
    assert estimates == sorted(estimates)
    assert np.allclose(np.log(estimates), np.log([us for us, _ in measured]), atol=np.log(1.7))


def test_each_feasible_config_has_an_estimate() -> None:
    seen = set()
    for asked in (
        problem(32, 1024, 14, 14, 256, 1, activation="relu"),
        problem(8, 320, 24, 20, 320, 3, bias=True, activation="gelu", **PAD),
        problem(2, 3, 65, 63, 72, 7, stride_h=2, padding_h=3, padding_w=3),
        problem(5, 63, 15, 17, 40, 2, S=3, stride_h=2, stride_w=1),
        problem(4, 64, 28, 28, 64, 3, dtype="fp32", **PAD),
    ):
        configs = drawn(KERNEL, asked, H200.limits, 150)
        seen |= {(each["VARIANT"], each["COPY"]) for each in configs}
        costs = [estimate(asked, each, H200.limits) for each in configs]
        assert all(cost.us > 0 and min(cost.parts.values()) >= 0 for cost in costs)
        assert len({cost.us for cost in costs}) > len(costs) // 4
    whole = {(variant, False) for variant in ("tiles", "boxes", "specialized", "direct", "gemm", "gemm_swapped")}
    assert seen == whole | {(variant, True) for variant in ("tiles", "boxes", "specialized")}


def test_pixels_of_several_windows_are_read_from_memory_once() -> None:
    point, nine = (problem(32, 64, 56, 56, 64, side, padding_h=side // 2, padding_w=side // 2) for side in (1, 3))
    assert layer(point).pixels == layer(nine).pixels
    assert read_bytes(nine) - read_bytes(point) == 8 * 64 * 64 * 2  # the filters' other elements
    apart = problem(32, 64, 56, 56, 64, 1, stride_h=2)
    assert read_bytes(apart) == (32 * 28 * 28 + 64) * 64 * 2  # a quarter of the pixels


def test_pixels_of_a_patch_outside_of_the_outputs_are_computed_too() -> None:
    asked = problem(2, 64, 13, 13, 64, 3, **PAD)
    through_pointers, boxes = (config(variant, 128, 64, 64, num_stages=3) for variant in ("tiles", "boxes"))
    assert sizes(asked, through_pointers) == (2 * 13 * 13, 64, 576)
    assert sizes(asked, boxes)[0] % 128 == 0
    assert sizes(asked, boxes)[0] > 2 * 13 * 13
