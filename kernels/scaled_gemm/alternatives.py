"""The config of warps with roles that the estimate of scaled_gemm finds fastest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from tuner.kernels.scaled_gemm.estimate import estimate
from tuner.kernels.scaled_gemm.space import (
    BLOCK,
    BLOCK_COLUMNS,
    VARIANTS,
    WITH_ROLES,
    is_promoted,
    scales_unaligned,
    tile_of_roles,
    valid,
)
from tuner.kernels.shared.first_cost import (
    LikelyTile,
    least,
    likely_tiles,
    may_choose,
    roles_margin,
    slices_margin,
)
from tuner.kernels.shared.product_coefficients import COEFFICIENTS
from tuner.kernels.shared.product_rows import unaligned
from tuner.kernels.shared.roles import MOST_DEEP_COLUMNS, Roles, parts
from tuner.kernels.spec import Limits, Problem, Value


def cost(problem: Problem, config: Mapping[str, Any], limits: Limits) -> float:
    """Return the estimated time of a config in us, with the margins for what the estimate errs in."""
    margin = roles_margin(tile_of_roles(problem, config)) if config["VARIANT"] in WITH_ROLES else 1.0
    return estimate(problem, config, limits).us * slices_margin(config) * margin


def alternative(problem: Problem, rules: Mapping[str, Value], limits: Limits) -> Mapping[str, Value]:
    """Return the config of warps with roles with the least estimate if it is below that of the rules, else theirs."""
    if not may_choose(problem, limits) or unaligned(problem) or scales_unaligned(problem):
        return rules
    return least(
        _plausible(problem, limits),
        rules,
        lambda config: cost(problem, config, limits),
        lambda config: valid(problem, config, limits),
    )


@cache
def _waits(rows: int, groups: int, width: int, of_blocks: bool) -> int:
    """Return the number of times in a step that a group waits for products: once if one wgmma computes all columns."""
    composed = Roles(groups, rows // groups, width, BLOCK, 1, 14, 4 if of_blocks else 0, promoted=True)
    whole = replace(composed, wide=True)
    return 1 if whole.can_be_wide and whole.holds_sums else len(composed.parts)


def _plausible(problem: Problem, limits: Limits) -> Iterator[Mapping[str, Value]]:
    """Yield the configs of the tiles with the least first cost. Some are not feasible."""
    promoted, of_blocks = is_promoted(problem), problem["scales"] == "block"
    cycles = COEFFICIENTS.promoted_cycles + (COEFFICIENTS.scaled_cycles if of_blocks else 0.0)

    def promotion(rows: int, groups: int, width: int) -> float:
        return cycles * _waits(rows, groups, width, of_blocks)

    def may_run(tile: LikelyTile) -> bool:
        return not of_blocks or (not tile.swapped and tile.width in BLOCK_COLUMNS)

    for tile in likely_tiles(
        problem,
        limits,
        VARIANTS["specialized"]["SPLIT_K"],
        promotion=promotion if promoted else None,
        may_run=may_run,
    ):
        composed = len(parts(tile.width, promoted)) > 1
        for is_wide in (True, False) if composed else (False,):
            yield {**tile.knobs(BLOCK, is_wide), "PROGRAMS": 1, "ALIGN": False}
        if tile.rows == 64 and tile.width <= MOST_DEEP_COLUMNS and not (promoted and composed):
            yield {**tile.knobs(2 * BLOCK, promoted), "PROGRAMS": 1, "ALIGN": False}
