"""The config of warps with roles that the estimate of gemm finds fastest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from tuner.kernels.gemm.estimate import estimate
from tuner.kernels.gemm.space import VARIANTS, WITH_ROLES, tile_of_roles, valid
from tuner.kernels.shared.first_cost import least, likely_tiles, may_choose, slices_margin
from tuner.kernels.shared.product_rows import unaligned
from tuner.kernels.shared.roles import MOST_DEEP_COLUMNS, parts
from tuner.kernels.spec import Limits, Problem, Value, itemsize


@dataclass(frozen=True)
class AlternativesSettings:
    """Margins of the estimate beside those of slices."""

    deep: float = 0.95
    """Factor on the estimates of warps with roles whose steps have 256 bytes along K."""
    composed: float = 1.06
    """Factor on those of groups that take turns and whose columns are several products: 796 x 10752 x 1024 nn takes
    1.06 to 1.14 times as long as others of the same estimate (H200, 2026-11-30)."""


SETTINGS = AlternativesSettings()


def cost(
    problem: Problem, config: Mapping[str, Any], limits: Limits, settings: AlternativesSettings = SETTINGS
) -> float:
    """Return the estimated time of a config in us, with the margins for what the estimate errs in."""
    margin = 1.0
    if config["VARIANT"] in WITH_ROLES:
        tile = tile_of_roles(problem, config)
        margin *= settings.deep if tile.block_k > 64 else 1.0
        composed = len(tile.parts) > 1 and not tile.wide and tile.turns > 1
        margin *= settings.composed if composed else 1.0
    return estimate(problem, config, limits).us * slices_margin(config) * margin


def alternative(problem: Problem, rules: Mapping[str, Value], limits: Limits) -> Mapping[str, Value]:
    """Return the config of warps with roles with the least estimate if it is below that of the rules, else theirs."""
    if not may_choose(problem, limits) or itemsize(problem.dtype) != 2 or unaligned(problem):
        return rules
    return least(
        _plausible(problem, limits),
        rules,
        lambda config: cost(problem, config, limits),
        lambda config: valid(problem, config, limits),
    )


def _plausible(problem: Problem, limits: Limits) -> Iterator[Mapping[str, Value]]:
    """Yield the configs of the tiles with the least first cost. Some are not feasible."""
    for tile in likely_tiles(problem, limits, VARIANTS["specialized"]["SPLIT_K"], in_turn=True):
        composed = len(parts(tile.width)) > 1
        wide = composed and problem["layout"] == "nt"
        is_small = tile.rows == 64 and tile.width <= MOST_DEEP_COLUMNS and not tile.in_turn
        depths = (64, 128) if is_small else (64,)
        for depth, is_wide in product(depths, (True, False) if wide else (False,)):
            if depth == 64 or not is_wide:
                yield {**tile.knobs(depth, is_wide), "STORES": 1, "PINGPONG": tile.in_turn}
