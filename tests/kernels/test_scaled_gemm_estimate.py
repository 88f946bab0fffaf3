"""Estimates of scaled_gemm: nothing is fitted to 8-bit products, and they agree with what was measured."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from helpers import B200, H200, drawn

from tuner import catalog
from tuner.kernels.scaled_gemm.alternatives import alternative
from tuner.kernels.scaled_gemm.default import by_rules
from tuner.kernels.scaled_gemm.estimate import estimate
from tuner.kernels.spec import Config, Problem
from tuner.search.space import feasible

KERNEL = catalog.load("scaled_gemm")
ROLES = {"VARIANT": "specialized", "BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 128, "num_stages": 14}
FOUR_WARPS = {**ROLES, "VARIANT": "persistent", "GROUP_M": 8, "num_stages": 5}
VECTORS = {"VARIANT": "vectors", "BLOCK_M": 1, "num_stages": 1, "num_warps": 2}
IN_BLOCKS: dict[str, Any] = {"scales": "block"}
EVENTS_US = 3.5
"""Time that a latency by events has over one in a graph."""


def problem(M: int, N: int, K: int, **attributes: object) -> Problem:
    return KERNEL.signature.problem({"M": M, "N": N, "K": K, **attributes})


def config(**values: Any) -> Config:
    return KERNEL.signature.config({"GROUP_M": 1, "num_warps": 4, **values})


@pytest.mark.parametrize(
    ("sizes", "attributes", "knobs", "us"),
    [
        ((4096, 4096, 4096), {}, {**ROLES, "BLOCK_N": 256}, 101.0),
        ((4096, 4096, 4096), {}, ROLES, 102.0),
        ((4096, 4096, 4096), {}, FOUR_WARPS, 130.0),
        ((4096, 4096, 4096), {}, {**FOUR_WARPS, "BLOCK_M": 256, "num_warps": 8, "num_stages": 3}, 130.0),
        ((256, 4096, 14336), {}, {**ROLES, "SPLIT_K": 2}, 34.0),
        ((256, 4096, 14336), {}, ROLES, 46.0),
        ((256, 4096, 4096), {}, {**ROLES, "SPLIT_K": 2}, 17.9),
        ((256, 4096, 4096), {}, ROLES, 18.8),
        ((4096, 4096, 4096), IN_BLOCKS, ROLES, 112.0),
        ((4096, 4096, 14336), IN_BLOCKS, ROLES, 388.0),
        ((1024, 6144, 4096), IN_BLOCKS, ROLES, 45.0),
        ((256, 4096, 4096), IN_BLOCKS, {**ROLES, "SPLIT_K": 2}, 18.4),
        ((256, 4096, 4096), IN_BLOCKS, ROLES, 20.7),
        ((1, 28672, 4096), {}, {**VECTORS, "BLOCK_N": 2, "BLOCK_K": 4096}, 35.6),
        ((1, 4096, 14336), {}, {**VECTORS, "BLOCK_N": 1, "BLOCK_K": 2048}, 21.9),
        ((2, 4096, 4096), {}, {**VECTORS, "BLOCK_M": 2, "BLOCK_N": 2, "BLOCK_K": 1024}, 12.2),
        ((2, 28672, 4096), {}, {**VECTORS, "BLOCK_M": 2, "BLOCK_N": 2, "BLOCK_K": 1024}, 41.7),
    ],
)
def test_estimates_are_near_what_was_measured(
    sizes: tuple[int, int, int], attributes: dict[str, Any], knobs: dict[str, Any], us: float
) -> None:
    """Figures of docs/studies/kernels.md, on an H200, by events; the estimate is of launches in a graph."""
    in_graph = us - EVENTS_US
    assert estimate(problem(*sizes, **attributes), config(**knobs), H200.limits).us == pytest.approx(in_graph, rel=0.13)


def test_sums_that_leave_the_tensor_cores_take_longer_and_longer_with_scales() -> None:
    """A single group has none beside it that multiplies while it waits."""
    for knobs, most in ((ROLES, 1.6), ({**ROLES, "BLOCK_M": 64, "GROUPS": 1}, 2.8)):
        fast, fp32, block = (
            estimate(problem(4096, 4096, 4096, **attributes), config(**knobs), H200.limits).us
            for attributes in ({"accumulate": "fast"}, {}, IN_BLOCKS)
        )
        assert 1.05 * fast < fp32 < block < most * fast


def test_each_feasible_config_has_an_estimate() -> None:
    for asked in (problem(2, 4096, 4096), problem(2047, 2047, 511), problem(2048, 2048, 512, scales="block")):
        configs = drawn(KERNEL, asked, H200.limits, count=30)
        estimator = KERNEL.estimator(asked, H200.limits)
        assert estimator is not None  # the sampler's prior
        assert len({estimator(each) for each in configs}) > 20
        assert all(min(estimate(asked, each, H200.limits).parts.values()) >= 0 for each in configs)


@pytest.mark.parametrize(
    "asked",
    [
        problem(129, 1728, 6912),
        problem(40, 5120, 3200, accumulate="fast"),
        problem(768, 3968, 7936, out_dtype="fp16"),
        problem(512, 4096, 4096, scales="block"),
    ],
)
def test_the_default_is_the_config_with_roles_that_has_the_least_estimate(asked: Problem) -> None:
    """A first cost leaves only the most promising tiles to the estimate. It leaves none out that is much better."""
    roles = tuple(part for part in KERNEL.parts if part["VARIANT"][0] in ("specialized", "swapped"))
    others = list(feasible(replace(KERNEL, parts=roles), asked, H200.limits))
    found = KERNEL.default_config(asked, H200.limits)
    assert found in others
    least = min(estimate(asked, each, H200.limits).us for each in others)
    assert estimate(asked, found, H200.limits).us <= 1.05 * least  # slices count 3 % more
    assert estimate(asked, found, H200.limits).us <= estimate(asked, by_rules(asked, H200.limits), H200.limits).us


def test_other_defaults_are_those_of_the_rules() -> None:
    """Few rows, rows that descriptors cannot read, and another card."""
    for sizes, card in (((16, 4096, 4096), H200), ((42, 3073, 10753), H200), ((512, 4096, 4096), B200)):
        asked = problem(*sizes)
        rules = by_rules(asked, card.limits)
        assert alternative(asked, rules, card.limits) is rules


def test_drawn_defaults_are_feasible() -> None:
    assert KERNEL.draw is not None
    dice, aligned = random.Random(5), set()
    for _ in range(80):
        asked = KERNEL.signature.problem(KERNEL.draw(dice))
        found = KERNEL.default_config(asked, H200.limits)
        assert KERNEL.valid(asked, found, H200.limits), (asked.text, found.text)
        aligned.add((found["VARIANT"], found["ALIGN"]))
    assert {("specialized", True), ("specialized", False), ("swapped", False)} <= aligned
