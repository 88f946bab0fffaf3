"""Estimated time of a config of gemm. The estimate itself is in `shared.product_estimate`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.kernels.gemm.space import DESCRIBED, WITH_ROLES, sliced_tiles, staging_slots, tile_of_roles
from tuner.kernels.shared.product_estimate import COEFFICIENTS, Coefficients, Way, estimated
from tuner.kernels.shared.product_rows import copies_of, loads_at_once, stores_at_once, transposed
from tuner.kernels.spec import Cost, Limits, Problem, itemsize


def estimate(
    problem: Problem, config: Mapping[str, Any], limits: Limits, coefficients: Coefficients = COEFFICIENTS
) -> Cost:
    """Return the estimated time of a config, with that of products, loads, last wave, memory, copies, start and end."""
    return estimated(way(problem, config, limits), limits, coefficients)


def way(problem: Problem, config: Mapping[str, Any], limits: Limits) -> Way:
    """Return how a config computes a problem."""
    variant: str = config["VARIANT"]
    size, tile, stages = itemsize(problem.dtype), None, config["num_stages"]
    if variant in WITH_ROLES:
        tile = tile_of_roles(problem, config)
        stages = tile.stages(staging_slots(problem, config, limits.sm_count))
    a_is_t, b_is_t = transposed(problem)
    M, N, K = problem.sizes
    copied_bytes, launches = copies_of(problem, config)
    return Way(
        sizes=(M, N, K),
        block=(config["BLOCK_M"], config["BLOCK_N"], config["BLOCK_K"]),
        element=size,
        stored=size,
        along_k=(not a_is_t, b_is_t),
        swapped=variant == "swapped",
        warps=config["num_warps"] if tile is None else 4 * tile.groups,
        stages=stages,
        group_m=config["GROUP_M"],
        tile=tile,
        stays=variant in DESCRIBED,
        vectors=variant == "vectors",
        streamed=variant == "streamed",
        sliced=sliced_tiles(problem, config, limits.sm_count),
        slices=config["SPLIT_K"],
        shared=variant == "stream_k",
        at_once=loads_at_once(problem, config) if variant == "tiles" else None,
        stored_at_once=stores_at_once(problem, config),
        copied_bytes=copied_bytes,
        copy_launches=launches,
        activation=problem["activation"],
    )
