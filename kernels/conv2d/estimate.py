"""Estimated time of a config of conv2d: that of its product of matrices. The estimate is `shared.product_estimate`.

Its coefficients are fitted to gemm's measured times, not to those of convolutions. At the median of 2,009 measured
configs of 75 layers, `specialized`, `boxes`, `tiles` and `direct` take 1.00, 1.09, 1.13 and 1.18 of their estimates,
and a layer's configs are ranked with a correlation of 0.86 (H200, 2026-11-30).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd
from typing import Any

from tuner.kernels.conv2d.copies import convolved, copied_bytes
from tuner.kernels.conv2d.layer import (
    check,
    direct_steps,
    filters_at_once,
    has_runs,
    layer,
    product,
    run_of,
    steps,
    taps_steps,
)
from tuner.kernels.conv2d.patches import count
from tuner.kernels.conv2d.space import AS_PRODUCTS, as_product, patch_of, tile_count
from tuner.kernels.shared.product_coefficients import COEFFICIENTS, Coefficients
from tuner.kernels.shared.product_estimate import estimated
from tuner.kernels.shared.product_way import Way
from tuner.kernels.shared.roles import Roles
from tuner.kernels.shared.roles_estimate import way_of_roles
from tuner.kernels.shared.tiling import ALIGNED_BYTES
from tuner.kernels.spec import Cost, Limits, Problem, itemsize


def estimate(
    problem: Problem, config: Mapping[str, Any], limits: Limits, coefficients: Coefficients = COEFFICIENTS
) -> Cost:
    """Return the estimated time of a config, with that of products, loads, last wave, memory, copies, start and end.

    Raises:
        UsageError: as `operands`.
    """
    check(problem)
    return estimated(way(problem, config, limits), limits, coefficients)


def way(problem: Problem, config: Mapping[str, Any], limits: Limits) -> Way:
    """Return how a config computes the product of a convolution."""
    variant, size = config["VARIANT"], itemsize(problem.dtype)
    if variant in AS_PRODUCTS:
        return way_of_roles(product(problem), as_product(config), limits)
    has_roles, by_threads = variant == "specialized", variant in ("tiles", "direct")
    stages, group_m = config["num_stages"], config["GROUP_M"]
    if variant == "direct":  # it loads all steps of a tile at once, and computes tiles in turn
        stages, group_m = 1 + direct_steps(problem, config["BLOCK_K"]), 1
    sliced = config["SPLIT_K"] > 1
    return Way(
        sizes=sizes(problem, config),
        block=(config["BLOCK_M"], config["BLOCK_N"], config["BLOCK_K"]),
        element=size,
        stored=size,
        along_k=(True, True),
        swapped=variant == "boxes",
        warps=8 if has_roles else config["num_warps"],
        stages=stages,
        group_m=group_m,
        tile=halves(problem, config) if has_roles else None,
        stays=has_roles,
        sliced=tile_count(problem, config) if sliced else 0,
        slices=config["SPLIT_K"],
        at_once=loads_at_once(problem, config) if by_threads else None,
        stored_at_once=filters_at_once(problem) if by_threads else None,
        read_bytes=read_bytes(problem),
        copied_bytes=copied_bytes(problem, config) // 2 if config["COPY"] else 0,
        copy_launches=1 if config["COPY"] else 0,
        activation=problem["activation"],
    )


def sizes(problem: Problem, config: Mapping[str, Any]) -> tuple[int, int, int]:
    """Return M, N and K of the product with what its patches and steps have beyond the convolution."""
    inner, depth = convolved(problem, config), config["BLOCK_K"]
    found = layer(inner)
    pixels = found.pixels
    if config["VARIANT"] in ("boxes", "specialized") and not found.is_matrix:
        pixels = count(inner, patch_of(inner, config)) * config["BLOCK_M"]
    walked = {"tiles": steps, "direct": direct_steps}.get(config["VARIANT"], taps_steps)
    return pixels, found.filters, walked(inner, depth) * depth


def halves(problem: Problem, config: Mapping[str, Any]) -> Roles:
    """Return the tile of `specialized`: each of two groups has half of a patch."""
    return Roles(
        groups=2,
        rows=config["BLOCK_M"] // 2,
        columns=config["BLOCK_N"],
        block_k=config["BLOCK_K"],
        element=itemsize(problem.dtype),
        most_stages=config["num_stages"],
    )


def loads_at_once(problem: Problem, config: Mapping[str, Any]) -> tuple[int, int]:
    """Return the elements of x, and of the filters, in one load by threads. `direct` loads filters once."""
    inner, most = convolved(problem, config), ALIGNED_BYTES // itemsize(problem.dtype)
    if config["VARIANT"] == "direct":
        return run_of(inner).unit, most
    each = run_of(inner).unit if has_runs(inner, config["BLOCK_K"]) else gcd(most, layer(inner).channels)
    return each, each


def read_bytes(problem: Problem) -> int:
    """Return the bytes of x and the filters that windows reach: those of overlapping windows count once."""
    found = layer(problem)
    of_x = found.images * found.rows.size * found.columns.size * found.channels
    return (min(of_x, found.pixels * found.depth) + found.filters * found.depth) * itemsize(problem.dtype)
