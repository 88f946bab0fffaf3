"""Default config of products with operands that are not aligned to 16 bytes: copied first, if the estimate favours it.

With its operands copied, a product is computed as one of aligned rows. Tiles through pointers need no copy of the
output, and are faster if that is large beside the product: with few steps along K.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from tuner.kernels.gemm.estimate import estimate
from tuner.kernels.gemm.rows import unaligned
from tuner.kernels.gemm.space import DEFAULTS, valid
from tuner.kernels.shared.tiling import rows_walked
from tuner.kernels.spec import Limits, Problem, Value


@dataclass(frozen=True)
class CopiesSettings:
    """When operands are copied, and into which tiles through pointers; from 25 problems (2026-11-30)."""

    least_us: float = 18.0
    """Estimated time of the default without copies from which operands are copied. Shorter products take two thirds of
    the estimate, and each launch costs the host time."""
    pointers: float = 1.05
    """Least estimated speedup for which tiles through pointers replace the default of aligned rows."""
    tiles: tuple[tuple[int, int, int], ...] = (
        (128, 256, 8), (256, 128, 8), (128, 128, 8), (128, 128, 4), (64, 128, 4), (128, 64, 4), (64, 64, 4),
        (64, 32, 4), (32, 64, 4), (32, 32, 4),
    )  # fmt: skip
    """Rows, columns and warps of tiles through pointers."""
    steps: tuple[tuple[int, int], ...] = ((64, 4), (64, 3), (32, 4))
    """Elements along K of a step, and stages, of tiles through pointers."""


SETTINGS = CopiesSettings()


def of_copies(
    problem: Problem, as_it_lies: Mapping[str, Value], aligned: Mapping[str, Value], limits: Limits
) -> Mapping[str, Value]:
    """Return the config after copies with the least estimate if it is below that without, else the latter.

    Threads without tensor cores lose little to rows that are not aligned.

    Args:
        as_it_lies: the default without copies.
        aligned: the default of the problem with aligned rows.
    """
    us = estimate(problem, as_it_lies, limits).us
    if as_it_lies["VARIANT"] == "vectors" or us < SETTINGS.least_us:
        return as_it_lies
    found, least = as_it_lies, us
    for factor, config in _after_copies(problem, aligned, limits):
        us = estimate(problem, config, limits).us
        if us * factor < least:
            found, least = config, us
    return found


def _after_copies(
    problem: Problem, aligned: Mapping[str, Value], limits: Limits
) -> Iterator[tuple[float, Mapping[str, Value]]]:
    """Yield feasible configs after copies, each with the speedup that it must have."""
    copied = {**aligned, "ALIGN": True}
    if valid(problem, copied, limits):
        yield 1.0, copied
    if "out" not in unaligned(problem):
        return
    for (block_m, block_n, warps), (block_k, stages) in product(SETTINGS.tiles, SETTINGS.steps):
        config: dict[str, Value] = {
            **DEFAULTS,
            "ALIGN": True,
            "BLOCK_M": block_m,
            "BLOCK_N": block_n,
            "BLOCK_K": block_k,
            "GROUP_M": rows_walked(problem, block_m),
            "VARIANT": "tiles",
            "SPLIT_K": 1,
            "STORES": 1,
            "num_warps": warps,
            "num_stages": stages,
        }
        if valid(problem, config, limits):
            yield SETTINGS.pointers, config
