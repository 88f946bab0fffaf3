"""The config of warps with roles that the estimate of gemm finds fastest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.kernels.gemm.estimate import estimate
from tuner.kernels.gemm.space import VARIANTS, WITH_ROLES, valid
from tuner.kernels.shared.first_cost import (
    least,
    likely_configs,
    may_choose,
    narrow_margin,
    roles_margin,
    slices_margin,
)
from tuner.kernels.shared.product_rows import transposed, unaligned
from tuner.kernels.shared.roles_space import tile_of_roles
from tuner.kernels.spec import Limits, Problem, Value, itemsize


def cost(problem: Problem, config: Mapping[str, Any], limits: Limits) -> float:
    """Return the estimated time of a config in us, with the margins for what the estimate errs in."""
    us = estimate(problem, config, limits).us * slices_margin(config)
    if config["VARIANT"] not in WITH_ROLES:
        return us
    tile, (a_is_t, b_is_t) = tile_of_roles(problem, config), transposed(problem)
    return us * roles_margin(tile) * narrow_margin(tile, a_is_t if config["VARIANT"] == "swapped" else not b_is_t)


def alternative(problem: Problem, rules: Mapping[str, Value], limits: Limits) -> Mapping[str, Value]:
    """Return the config of warps with roles with the least estimate if it is below that of the rules, else theirs."""
    if not may_choose(problem, limits) or itemsize(problem.dtype) != 2 or unaligned(problem):
        return rules
    found = likely_configs(problem, limits, VARIANTS["specialized"]["SPLIT_K"])
    return least(
        ({**config, "STORES": 1, "ALIGN": False} for config in found),
        rules,
        lambda config: cost(problem, config, limits),
        lambda config: valid(problem, config, limits),
    )
