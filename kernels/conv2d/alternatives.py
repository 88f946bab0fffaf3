"""The default of convolutions that are products of matrices: the config that the estimate of products finds fastest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tuner.kernels.conv2d.layer import product
from tuner.kernels.conv2d.space import AS_PRODUCTS, as_product, is_product, tile_count, valid
from tuner.kernels.shared.first_cost import least, likely_configs, may_choose, slices_margin
from tuner.kernels.shared.product_estimate import Way, estimated
from tuner.kernels.shared.roles import Roles
from tuner.kernels.shared.roles_estimate import way_of_roles
from tuner.kernels.shared.roles_space import ROLES
from tuner.kernels.spec import Limits, Problem, Value, itemsize


@dataclass(frozen=True)
class AlternativesSettings:
    """When an estimate replaces the config of the rules."""

    gain: float = 1.03
    """Least speedup over the rules' config, by estimates. The rules were fitted to measured layers: of 28 measured
    configs that were estimated to be up to 10 % faster than theirs, 4 were (H200, 2026-11-30)."""


SETTINGS = AlternativesSettings()
_BY_ROLES = {roles: variant for variant, roles in AS_PRODUCTS.items()}


def alternative(
    problem: Problem, rules: Mapping[str, Value], limits: Limits, settings: AlternativesSettings = SETTINGS
) -> Mapping[str, Value]:
    """Return the product by warps with roles with the least estimate if it is below that of the rules, else theirs."""
    if itemsize(problem.dtype) != 2 or not is_product(problem, limits) or not may_choose(product(problem), limits):
        return rules

    def cost(config: Mapping[str, Any]) -> float:
        margin = settings.gain if config["VARIANT"] in AS_PRODUCTS else 1.0
        return estimated(way(problem, config, limits), limits).us * slices_margin(config) * margin

    return least(_plausible(problem, limits), rules, cost, lambda config: valid(problem, config, limits))


def _plausible(problem: Problem, limits: Limits) -> Iterator[Mapping[str, Value]]:
    """Yield the products in the tiles with the least first cost. Some are not feasible."""
    for config in likely_configs(product(problem), limits, ROLES["SPLIT_K"]):
        yield {**config, "VARIANT": _BY_ROLES[str(config["VARIANT"])], "PATCH": 0, "COPY": False}


def way(problem: Problem, config: Mapping[str, Any], limits: Limits) -> Way:
    """Return how a config computes a convolution that is a product of matrices, of aligned elements of 16 bits.

    Of 706 measured configs of 25 layers, `tiles`, `boxes` and `specialized` take 1.11, 1.02 and 0.96 of their estimates
    (medians; H200, 2026-11-30), though these are fitted to gemm's variants.
    """
    matrices, variant, slices = product(problem), config["VARIANT"], config["SPLIT_K"]
    if variant in AS_PRODUCTS:
        return way_of_roles(matrices, as_product(config), limits)
    M, N, K = matrices.sizes
    tile = None
    if variant == "specialized":
        tile = Roles(
            groups=2,
            rows=config["BLOCK_M"] // 2,
            columns=config["BLOCK_N"],
            block_k=config["BLOCK_K"],
            element=itemsize(problem.dtype),
            most_stages=config["num_stages"],
        )
    return Way(
        sizes=(M, N, K),
        block=(config["BLOCK_M"], config["BLOCK_N"], config["BLOCK_K"]),
        element=itemsize(problem.dtype),
        stored=itemsize(problem.dtype),
        along_k=(True, True),
        swapped=variant == "boxes",
        warps=config["num_warps"] if tile is None else 4 * tile.groups,
        stages=config["num_stages"],
        group_m=config["GROUP_M"],
        tile=tile,
        stays=variant == "specialized",
        sliced=tile_count(problem, config) if slices > 1 else 0,
        slices=slices,
        activation=problem["activation"],
    )
