"""The config of warps with roles that the estimate of gemm finds fastest.

Of some 500 tiles, a first cost selects those that the estimate then compares.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from tuner.kernels.gemm.estimate import estimate
from tuner.kernels.shared.product_rows import unaligned
from tuner.kernels.gemm.space import VARIANTS, valid
from tuner.kernels.shared.roles import MOST_DEEP_COLUMNS, ROWS, WIDTHS, divides, parts
from tuner.kernels.spec import Limits, Problem, Value, cdiv, itemsize, next_power_of_2


@dataclass(frozen=True)
class AlternativesSettings:
    """Which configs are estimated, and when one of them replaces the config of the rules."""

    unfitted: float = 1.08
    """Least estimated speedup over the config of the rules for which the alternative is used in layouts other than nt:
    few tiles with roles in these layouts were fitted, and an estimate of composed columns was 20 % too low."""
    slices: float = 1.03
    """Factor on the estimates of slices, which err most."""
    least_rows: int = 17
    """Rows and columns of the product from which the estimate is used."""
    tiles: int = 40
    """Number of tiles that are estimated."""
    products: float = 2600.0
    """Products of a multiprocessor in a cycle, for the first cost."""
    loaded_bytes: float = 64.0
    """Bytes that a multiprocessor loads in a cycle, for the first cost."""
    stored_bytes: float = 25.0
    """Bytes that a multiprocessor stores or adds up in a cycle, for the first cost."""
    join_cycles: float = 2600.0
    """Cycles in which slices wait for each other, for the first cost."""


SETTINGS = AlternativesSettings()

_SHAPES = tuple(
    (swapped, rows, groups)
    for swapped, rows, groups in product((False, True), ROWS, (1, 2, 3))
    if divides(rows, groups)
)
"""Shapes of the left side: if the factors are swapped, rows of a tile, and groups that share them."""


def alternative(
    problem: Problem, rules: Mapping[str, Value], limits: Limits, settings: AlternativesSettings = SETTINGS
) -> Mapping[str, Value]:
    """Return the config of warps with roles with the least estimate if it is below that of the rules, else theirs.

    The rules are good for few rows.
    """
    few = min(problem["M"], problem["N"]) < settings.least_rows
    if few or itemsize(problem.dtype) != 2 or limits.capability[0] != 9 or unaligned(problem):
        return rules
    most = estimate(problem, rules, limits).us / (1.0 if problem["layout"] == "nt" else settings.unfitted)
    costs = [
        (estimate(problem, config, limits).us * (settings.slices if config["SPLIT_K"] != 1 else 1.0), config)
        for config in _plausible(problem, limits, settings)
    ]
    faster = sorted((cost for cost in costs if cost[0] < most), key=lambda cost: cost[0])
    return next((config for _, config in faster if valid(problem, config, limits)), rules)


def _plausible(problem: Problem, limits: Limits, settings: AlternativesSettings) -> Iterator[Mapping[str, Value]]:
    """Yield the configs of the tiles with the least first cost. Some are not feasible."""
    tiles = sorted(_tiles(problem, limits, settings))[: settings.tiles]
    for _, waves, swapped, rows, groups, width, slices in tiles:
        composed = len(parts(width)) > 1
        wide = composed and rows == 64 * groups and problem["layout"] == "nt"
        depths = (64, 128) if swapped and width <= MOST_DEEP_COLUMNS else (64,)
        stores = (1, 2, 4) if waves > 1 else (1,)
        for depth, is_wide, pieces in product(depths, (True, False) if wide else (False,), stores):
            if depth == 64 or not is_wide:
                yield {
                    "BLOCK_M": width if swapped else rows,
                    "BLOCK_N": rows if swapped else width,
                    "BLOCK_K": depth,
                    "GROUP_M": 1,
                    "VARIANT": "swapped" if swapped else "specialized",
                    "SPLIT_K": slices,
                    "STORES": pieces,
                    "GROUPS": groups,
                    "WIDE": is_wide,
                    "ALIGN": False,
                    "num_warps": 4,
                    "num_stages": 14,
                }


_Tile = tuple[float, int, bool, int, int, int, int]


def _tiles(problem: Problem, limits: Limits, settings: AlternativesSettings) -> Iterator[_Tile]:
    """Yield tiles: first cost in cycles, waves, whether the factors are swapped, rows, groups, width and slices."""
    M, N, K = problem.sizes
    steps, sm_count = cdiv(K, 64), limits.sm_count
    for swapped, rows, groups in _SHAPES:
        left, right = (N, M) if swapped else (M, N)
        if rows > max(16, next_power_of_2(left)):
            continue
        high = cdiv(left, rows)
        for width in WIDTHS:
            if width > max(16, next_power_of_2(right)):
                break
            tiles = high * cdiv(right, width)
            products = rows * width * 64 / settings.products
            loaded = (min(rows, left) + min(width, right)) * 128 / settings.loaded_bytes
            for slices in _SLICES:
                if slices > 1 and not sm_count < 2 * tiles * slices <= 2 * sm_count:
                    continue
                waves = cdiv(tiles * slices, sm_count)
                cost = waves * (cdiv(steps, slices) * max(products, loaded) + rows * width * 2 / settings.stored_bytes)
                if slices > 1:
                    cost += settings.join_cycles + (slices + 1) * rows * width * 4 / settings.stored_bytes
                yield cost, waves, swapped, rows, groups, width, slices


_SLICES = tuple(int(str(slices)) for slices in VARIANTS["specialized"]["SPLIT_K"])
