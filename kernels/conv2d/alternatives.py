"""The default of convolutions that are products of matrices: the config that the estimate of products finds fastest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tuner.kernels.conv2d.estimate import estimate
from tuner.kernels.conv2d.layer import product
from tuner.kernels.conv2d.space import AS_PRODUCTS, as_product, is_product, valid
from tuner.kernels.shared.first_cost import least, likely_configs, may_choose, roles_margin, slices_margin
from tuner.kernels.shared.roles_space import ROLES, tile_of_roles
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
        margin = slices_margin(config)
        if config["VARIANT"] in AS_PRODUCTS:
            margin *= settings.gain * roles_margin(tile_of_roles(product(problem), as_product(config)))
        return estimate(problem, config, limits).us * margin

    return least(_plausible(problem, limits), rules, cost, lambda config: valid(problem, config, limits))


def _plausible(problem: Problem, limits: Limits) -> Iterator[Mapping[str, Value]]:
    """Yield the products in the tiles with the least first cost. Some are not feasible."""
    for config in likely_configs(product(problem), limits, ROLES["SPLIT_K"]):
        yield {**config, "VARIANT": _BY_ROLES[str(config["VARIANT"])], "PATCH": 0, "COPY": False}
