"""Estimated time of a config of scaled_gemm. The estimate itself is in `shared.product_estimate`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.kernels.scaled_gemm.occupancy import rounds
from tuner.kernels.scaled_gemm.space import (
    BLOCK,
    DESCRIBED,
    WITH_ROLES,
    copies_scales,
    is_promoted,
    shares_evenly,
    staging_slots,
    sums_held,
    swapped,
    tile_of_roles,
)
from tuner.kernels.shared.overlapped import overlapped
from tuner.kernels.shared.product_coefficients import COEFFICIENTS, Coefficients
from tuner.kernels.shared.product_estimate import estimated
from tuner.kernels.shared.product_rows import copies_of, loads_at_once, stores_at_once
from tuner.kernels.shared.product_way import Way
from tuner.kernels.shared.tiling import tile_count
from tuner.kernels.spec import Cost, Limits, Problem, cdiv, itemsize


def estimate(
    problem: Problem, config: Mapping[str, Any], limits: Limits, coefficients: Coefficients = COEFFICIENTS
) -> Cost:
    """Return the estimated time of a config, with that of products, loads, last wave, memory, copies, start and end."""
    found = estimated(way(problem, config, limits), limits, coefficients)
    if problem["scales"] == "tensor" or config["VARIANT"] in WITH_ROLES:
        return found
    waits = waits_for_scales(problem, config, limits, coefficients)
    before = coefficients.start_us + found.parts["copies"]
    us = before + overlapped(coefficients.sharpness, found.us - before, waits)
    return Cost(us, {**found.parts, "loads": max(found.parts["loads"], waits)})


def waits_for_scales(
    problem: Problem, config: Mapping[str, Any], limits: Limits, coefficients: Coefficients = COEFFICIENTS
) -> float:
    """Return the time in us in which a program waits for the scales of its blocks.

    Threads load them one step ahead, so no step takes less than a load.
    """
    steps = cdiv(problem["K"], config["BLOCK_K"] * config["SPLIT_K"])
    return rounds(problem, config, limits) * steps * coefficients.latency_cycles / coefficients.mhz


def way(problem: Problem, config: Mapping[str, Any], limits: Limits) -> Way:
    """Return how a config computes a problem."""
    variant: str = config["VARIANT"]
    tile, stages, even = None, config["num_stages"], shares_evenly(config)
    if variant in WITH_ROLES:
        tile = tile_of_roles(problem, config)
        stages = tile.stages(staging_slots(problem, config, limits.sm_count))
    M, N, K = problem.sizes
    copied_bytes, launches = copies_of(problem, config)
    if copies_scales(problem, config):
        copied_bytes, launches = copied_bytes + M * cdiv(K, BLOCK) * itemsize("fp32"), launches + 1
    return Way(
        sizes=(M, N, K),
        block=(config["BLOCK_M"], config["BLOCK_N"], config["BLOCK_K"]),
        element=itemsize(problem.dtype),
        stored=itemsize(problem["out_dtype"]),
        along_k=(True, True),
        swapped=swapped(config),
        warps=config["num_warps"] if tile is None else 4 * tile.groups,
        stages=stages,
        group_m=config["GROUP_M"],
        tile=tile,
        stays=variant in DESCRIBED,
        programs=config["PROGRAMS"],
        vectors=variant == "vectors",
        sliced=tile_count(problem, config) if config["SPLIT_K"] > 1 and not even else 0,
        slices=config["SPLIT_K"],
        shared=even,
        at_once=loads_at_once(problem, config) if variant == "tiles" else None,
        stored_at_once=stores_at_once(problem, config),
        copied_bytes=copied_bytes,
        copy_launches=launches,
        sums=sums_held(problem, config, limits),
        promoted=is_promoted(problem),
        scaled=problem["scales"] == "block",
    )
