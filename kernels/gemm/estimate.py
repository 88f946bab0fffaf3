"""Estimated time of a config of gemm. The estimate itself is in `shared.product_estimate`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.kernels.gemm.space import DESCRIBED, WITH_ROLES, sliced_tiles
from tuner.kernels.shared.product_coefficients import COEFFICIENTS, Coefficients
from tuner.kernels.shared.product_estimate import estimated
from tuner.kernels.shared.product_rows import copies_of, loads_at_once, stores_at_once, transposed
from tuner.kernels.shared.product_way import Way
from tuner.kernels.shared.roles_estimate import way_of_roles
from tuner.kernels.spec import Cost, Limits, Problem, itemsize


def estimate(
    problem: Problem, config: Mapping[str, Any], limits: Limits, coefficients: Coefficients = COEFFICIENTS
) -> Cost:
    """Return the estimated time of a config, with that of products, loads, last wave, memory, copies, start and end."""
    return estimated(way(problem, config, limits), limits, coefficients)


def way(problem: Problem, config: Mapping[str, Any], limits: Limits) -> Way:
    """Return how a config computes a problem."""
    variant: str = config["VARIANT"]
    if variant in WITH_ROLES:
        return way_of_roles(problem, config, limits)
    a_is_t, b_is_t = transposed(problem)
    M, N, K = problem.sizes
    size, (copied_bytes, launches) = itemsize(problem.dtype), copies_of(problem, config)
    return Way(
        sizes=(M, N, K),
        block=(config["BLOCK_M"], config["BLOCK_N"], config["BLOCK_K"]),
        element=size,
        stored=size,
        along_k=(not a_is_t, b_is_t),
        swapped=False,
        warps=config["num_warps"],
        stages=config["num_stages"],
        group_m=config["GROUP_M"],
        stays=variant in DESCRIBED,
        vectors=variant == "vectors",
        streamed=variant == "streamed",
        sliced=sliced_tiles(problem, config, limits.sm_count),
        slices=config["SPLIT_K"],
        at_once=loads_at_once(problem, config) if variant == "tiles" else None,
        stored_at_once=stores_at_once(problem, config),
        copied_bytes=copied_bytes,
        copy_launches=launches,
        activation=problem["activation"],
    )
