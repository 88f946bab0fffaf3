"""Estimated time of a 16-bit product by warps with roles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.kernels.shared.product_rows import copies_of, stores_at_once, transposed
from tuner.kernels.shared.product_way import Way
from tuner.kernels.shared.roles_space import staging_slots, tile_of_roles
from tuner.kernels.shared.tiling import tile_count
from tuner.kernels.spec import Limits, Problem, itemsize


def way_of_roles(problem: Problem, config: Mapping[str, Any], limits: Limits) -> Way:
    """Return how a config of variant `specialized`, `swapped` or `stream_k` computes a product."""
    tile, size = tile_of_roles(problem, config), itemsize(problem.dtype)
    a_is_t, b_is_t = transposed(problem)
    M, N, K = problem.sizes
    copied_bytes, launches = copies_of(problem, config)
    return Way(
        sizes=(M, N, K),
        block=(config["BLOCK_M"], config["BLOCK_N"], config["BLOCK_K"]),
        element=size,
        stored=size,
        along_k=(not a_is_t, b_is_t),
        swapped=config["VARIANT"] == "swapped",
        warps=4 * tile.groups,
        stages=tile.stages(staging_slots(problem, config, limits.sm_count)),
        group_m=config["GROUP_M"],
        tile=tile,
        stays=True,
        sliced=tile_count(problem, config) if config["SPLIT_K"] > 1 else 0,
        slices=config["SPLIT_K"],
        shared=config["VARIANT"] == "stream_k",
        stored_at_once=stores_at_once(problem, config),
        copied_bytes=copied_bytes,
        copy_launches=launches,
        activation=problem["activation"],
    )
