"""Default config of products of 17 to 64 rows or columns with a short K: whole tiles, if the estimate favours them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from tuner.kernels.gemm.alternatives import cost
from tuner.kernels.gemm.few_tiles import fullest
from tuner.kernels.gemm.space import PLAIN
from tuner.kernels.shared.first_cost import may_choose
from tuner.kernels.shared.product_rows import unaligned
from tuner.kernels.spec import Limits, Problem, Value, itemsize


@dataclass(frozen=True)
class WholeTilesSettings:
    """Which whole tiles are estimated."""

    sides: tuple[int, ...] = (16, 32, 64)
    """Rows and columns of a tile."""
    depths: tuple[int, ...] = (64, 128, 256)
    """Steps along K."""
    narrow: tuple[int, int] = (17, 64)
    """Fewest and most rows, or columns, of the product."""
    wide: int = 8192
    """Most columns, or rows, of its other side."""
    most_k: int = 2048
    """Largest K: the error of the estimate is a fixed time of each launch."""
    lead_us: float = 0.45
    """Time in us that is subtracted from the estimate of `tiles` to compare it with other variants. Ten of 15 products
    of 17 to 58 rows and a K of 256 to 1,536 were faster by 2 to 20 % in tiles than in the config of the least estimate
    (H200, 2026-12-01)."""


SETTINGS = WholeTilesSettings()


def of_whole_tiles(
    problem: Problem, found: Mapping[str, Value], limits: Limits, settings: WholeTilesSettings = SETTINGS
) -> Mapping[str, Value]:
    """Return the whole tile with the least estimate, less `lead_us`, if it is below that of `found`; else that."""
    narrow, wide = sorted((problem["M"], problem["N"]))
    fewest, most = settings.narrow
    is_asked = fewest <= narrow <= most and wide <= settings.wide and problem["K"] <= settings.most_k
    if not is_asked or not may_choose(problem, limits) or itemsize(problem.dtype) != 2 or unaligned(problem):
        return found

    def us(config: Mapping[str, Value]) -> float:
        return cost(problem, config, limits) - (settings.lead_us if config["VARIANT"] == "tiles" else 0.0)

    return min((found, *_whole(problem, limits, settings)), key=us)


def _whole(problem: Problem, limits: Limits, settings: WholeTilesSettings) -> Iterator[Mapping[str, Value]]:
    """Yield feasible tiles, each with the most stages that fit."""
    for block_m, block_n, block_k in product(settings.sides, settings.sides, settings.depths):
        tile: dict[str, Value] = {**PLAIN, "BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
        yield from fullest(problem, {**tile, "VARIANT": "tiles"}, limits)
