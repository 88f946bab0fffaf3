"""Estimates of gemm: they order recorded configs as the card did, and name what holds one back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from compiled_gemm import of_variant
from helpers import H200

from tuner import catalog, recorded
from tuner.errors import KernelFault
from tuner.kernels.gemm.alternatives import alternative, cost
from tuner.kernels.gemm.default import by_rules
from tuner.kernels.gemm.estimate import estimate
from tuner.kernels.spec import Config, Cost, Limits, Problem
from tuner.search.space import feasible

GEMM = catalog.load("gemm")


def problem(**values: object) -> Problem:
    return GEMM.signature.problem({"layout": "nt", **values})


def config(**values: object) -> Config:
    tile = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8, "num_warps": 4, "num_stages": 5}
    return GEMM.signature.config({**tile, "VARIANT": "persistent", **values})  # type: ignore[dict-item]


def _ranks(values: list[float]) -> np.ndarray:
    return np.argsort(np.argsort(values))


@pytest.mark.parametrize(("name", "least"), [("gemm-4096x4096x4096-bf16", 0.9), ("gemm-256x4096x14336-bf16-nt", 0.8)])
def test_estimates_order_configs_as_the_card_did(name: str, least: float) -> None:
    space = recorded.load(f"{name}-nvidia-h200")
    ran = [each for each in space.measurements if each.ok][::7]
    configs = [GEMM.signature.config(each.config) for each in ran]  # of an earlier source, which had fewer knobs
    costs = [estimate(space.problem, config, space.device.limits).us for config in configs]
    latencies = [each.latency_us for each in ran]
    assert np.corrcoef(_ranks(costs), _ranks(latencies))[0, 1] > least
    best = min(range(len(ran)), key=costs.__getitem__)
    assert latencies[best] < 1.1 * min(latencies)


@pytest.mark.parametrize(
    "sizes",
    [
        {"M": 1, "N": 4096, "K": 4096},
        {"M": 13, "N": 513, "K": 100},
        {"M": 520, "N": 6144, "K": 4096, "dtype": "fp32", "precision": "tf32", "layout": "nn"},
    ],
)
def test_each_feasible_config_has_an_estimate(sizes: dict[str, object]) -> None:
    given = problem(**sizes)
    costs = [GEMM.estimate(given, each, H200.limits) for each in feasible(GEMM, given, H200.limits)]  # type: ignore[misc]
    assert all(cost.us > 0 and min(cost.parts.values()) >= 0 for cost in costs)
    assert len({cost.us for cost in costs}) > len(costs) // 20


def test_the_longest_part_limits_a_config() -> None:
    assert estimate(problem(M=8192), config(BLOCK_N=256, num_warps=8, num_stages=4), H200.limits).limit == "products"
    few = config(BLOCK_M=16, BLOCK_N=128, BLOCK_K=128, GROUP_M=1)
    assert estimate(problem(M=16, N=32768, K=8192), few, H200.limits).limit == "memory"
    assert estimate(problem(M=128, N=128, K=256), config(GROUP_M=1), H200.limits).limit == "start and end"
    last = estimate(problem(M=133 * 128, N=128, K=8192), config(GROUP_M=1), H200.limits)
    even = estimate(problem(M=132 * 128, N=128, K=8192), config(GROUP_M=1), H200.limits)
    assert last.parts["waves"] > 20 * even.parts["waves"]


def test_a_card_with_faster_memory_is_faster_where_memory_limits() -> None:
    given, few = problem(M=16, N=32768, K=8192), config(BLOCK_M=16, GROUP_M=1)
    slow, fast = (replace(H200.limits, gb_per_s=rate) for rate in (2000.0, 4000.0))
    assert estimate(given, few, slow).us > 1.5 * estimate(given, few, fast).us


def test_an_estimate_that_is_no_cost_is_refused() -> None:
    def guess(problem: Problem, config: object, limits: Limits) -> Cost:
        return 1.0  # type: ignore[return-value]

    estimator = replace(GEMM, estimate=guess).estimator(problem(M=64), H200.limits)
    assert estimator is not None
    with pytest.raises(KernelFault, match=r"estimate returns a Cost with a latency above 0, not 1.0; correct it"):
        estimator(config())
    assert replace(GEMM, estimate=None).estimator(problem(M=64), H200.limits) is None


@pytest.mark.parametrize(("M", "N", "K"), [(42, 3072, 10752), (48, 3584, 18944)])
def test_a_default_that_is_expected_to_be_slower_than_another_config_is_replaced(M: int, N: int, K: int) -> None:
    given = problem(M=M, N=N, K=K)
    rules, found = by_rules(given, H200.limits), GEMM.default_config(given, H200.limits)
    assert GEMM.valid(given, found, H200.limits)
    assert estimate(given, rules, H200.limits).us > 1.5 * estimate(given, found, H200.limits).us


@pytest.mark.parametrize(
    "sizes", [{"M": 512, "N": 2560, "K": 9728}, {"M": 40, "N": 5120, "K": 3200}, {"M": 1280, "N": 6848, "K": 3456}]
)
def test_the_default_is_the_config_with_roles_that_has_the_least_estimate(sizes: dict[str, object]) -> None:
    """A first cost leaves only the most promising tiles to the estimate. It leaves none out that is much better."""
    given = problem(**sizes)
    found = GEMM.default_config(given, H200.limits)
    others = [each for variant in ("specialized", "swapped") for each in of_variant(variant, given, H200.limits)]
    least = min(cost(given, each, H200.limits) for each in others)
    assert found in others
    assert cost(given, found, H200.limits) <= 1.01 * least


@pytest.mark.parametrize(
    "sizes",
    [
        {"M": 16, "N": 4096, "K": 4096},  # few rows
        {"M": 42, "N": 3073, "K": 10753},  # rows that descriptors cannot read
        {"M": 42, "N": 3072, "K": 10752, "dtype": "fp32", "precision": "tf32"},
    ],
)
def test_other_defaults_are_those_of_the_rules(sizes: dict[str, object]) -> None:
    given = problem(**sizes)
    assert alternative(given, (rules := by_rules(given, H200.limits)), H200.limits) is rules
    ampere = replace(H200.limits, capability=(8, 0))
    few = problem(M=42, N=3072, K=10752)
    assert alternative(few, (rules := by_rules(few, ampere)), ampere) is rules


def roles(**values: object) -> Config:
    tile = {"BLOCK_M": 128, "BLOCK_N": 128, "GROUPS": 2, "GROUP_M": 1, "num_stages": 14}
    return config(VARIANT="specialized", **{**tile, **values})


def test_a_group_that_stores_its_tile_does_not_delay_the_products_of_the_other() -> None:
    """With three tiles or more a program, each of few steps; with one tile, there is nothing to take turns with."""
    in_turn = roles(GROUPS=1, PINGPONG=True)
    short, long = problem(M=16384, N=2048, K=256), problem(M=16384, N=2048, K=8192)
    gains = [
        estimate(given, roles(), H200.limits).us / estimate(given, in_turn, H200.limits).us for given in (short, long)
    ]
    assert gains[0] > 1.1
    assert 0.98 < gains[1] < gains[0] - 0.05


def test_a_step_that_wgmma_reads_stays_in_shared_memory() -> None:
    """Three stages of 32 KB leave room for a second program. Four do not, as 34112 x 210 x 840 has shown on an H200.

    Earlier tensor cores read registers, so of four stages three are in shared memory.
    """
    given, tile = problem(M=34112, N=256, K=832), {"VARIANT": "tiles", "num_warps": 8}
    ampere = replace(H200.limits, capability=(8, 0))
    three, four = (
        [estimate(given, config(**tile, num_stages=stages), card).us for card in (H200.limits, ampere)]
        for stages in (3, 4)
    )
    assert three[0] < four[0]
    assert three[1] >= four[1]


def test_parts_of_columns_that_lie_across_k_are_loaded_in_short_rows() -> None:
    """144 columns are 128 and 16, and 16 of them 32 bytes of a row."""
    given = {"M": 4096, "N": 4608, "K": 4096}
    wider = {
        layout: estimate(problem(**given, layout=layout), roles(BLOCK_N=144), H200.limits).parts["loads"]
        / estimate(problem(**given, layout=layout), roles(BLOCK_N=128), H200.limits).parts["loads"]
        for layout in ("nt", "nn")
    }
    assert wider["nn"] > 1.05 * wider["nt"]


def test_narrow_last_columns_that_do_not_lie_along_k_are_chosen_less() -> None:
    """On an H200, one group with 128 and 16 columns took 67.6 us, three slices with three groups 51.8 us."""
    found = GEMM.default(GEMM.signature.problem({"M": 192, "N": 6144, "K": 10880}), H200.limits)
    assert found["GROUPS"] == 3
    along_k = GEMM.default(problem(M=192, N=6144, K=10880), H200.limits)
    assert (along_k["GROUPS"], along_k["BLOCK_N"]) == (1, 144)
