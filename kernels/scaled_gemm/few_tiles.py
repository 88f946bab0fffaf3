"""Default config of few tiles of scaled_gemm: those of `tiles` that all run at once, chosen by the estimate.

Such a product takes as long as its factors take to arrive. Programs that share a multiprocessor fill each other's gaps,
and stages beyond what all of them have room for would leave the last programs for a round of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from operator import itemgetter

from tuner.kernels.scaled_gemm.alternatives import cost
from tuner.kernels.scaled_gemm.occupancy import most_stages, rounds
from tuner.kernels.scaled_gemm.space import BLOCK, DEFAULTS, VARIANTS, is_promoted, valid
from tuner.kernels.shared.product_rows import unaligned
from tuner.kernels.shared.tiling import rows_walked, tile_count
from tuner.kernels.spec import Limits, Problem, Value


@dataclass(frozen=True)
class FewTilesSettings:
    """Tiles that are estimated, and when they replace the config found so far."""

    sides: tuple[tuple[int, int], ...] = ((16, 64), (16, 128), (32, 64), (32, 128), (64, 64), (64, 128))
    """Short and long side of a tile. wgmma takes 64 rows or columns, and either side may be the long one."""
    programs: int = 4
    """Most programs for each multiprocessor."""
    gain: float = 1.03
    """Least speedup over the config found so far, by estimates with margins."""


SETTINGS = FewTilesSettings()
_SLICES = tuple(int(str(slices)) for slices in VARIANTS["tiles"]["SPLIT_K"])


def of_few_tiles(
    problem: Problem, found: Mapping[str, Value], limits: Limits, settings: FewTilesSettings = SETTINGS
) -> Mapping[str, Value]:
    """Return the config of `tiles` with the least estimate if it is below that of the config found so far, else that.

    The latter too on other cards than Hopper, or if threads multiply, or rows are not aligned to 16 bytes.
    """
    if limits.capability[0] != 9 or found["VARIANT"] == "vectors" or unaligned(problem):
        return found
    costs = [(cost(problem, config, limits), config) for config in at_once(problem, limits, settings)]
    us, fastest = min(costs, key=itemgetter(0), default=(0.0, found))
    return fastest if us * settings.gain < cost(problem, found, limits) else found


def at_once(problem: Problem, limits: Limits, settings: FewTilesSettings = SETTINGS) -> Iterator[Mapping[str, Value]]:
    """Yield feasible configs whose programs all run at once on half of the card or more, with the most stages that fit.

    Sums that leave the tensor cores do so every 128 products: then no step is longer.
    """
    depths = (BLOCK,) if is_promoted(problem) else (BLOCK, 2 * BLOCK)
    tiles = {tile for short, long in settings.sides for tile in ((short, long), (long, short))}
    for (block_m, block_n), slices, block_k in product(sorted(tiles), _SLICES, depths):
        programs = tile_count(problem, {"BLOCK_M": block_m, "BLOCK_N": block_n}) * slices
        if not limits.sm_count < 2 * programs <= 2 * settings.programs * limits.sm_count:
            continue
        config: dict[str, Value] = {
            **DEFAULTS,
            "BLOCK_M": block_m,
            "BLOCK_N": block_n,
            "BLOCK_K": block_k,
            "GROUP_M": rows_walked(problem, block_m),
            "VARIANT": "tiles",
            "SPLIT_K": slices,
            "num_warps": 4,
        }
        config["num_stages"] = most_stages(problem, config, limits)
        if rounds(problem, config, limits) == 1 and valid(problem, config, limits):
            yield config
