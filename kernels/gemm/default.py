"""Default config of gemm: the first feasible one of the rules, or what the estimate finds faster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from tuner.kernels.gemm.alternatives import alternative
from tuner.kernels.gemm.estimate import estimate
from tuner.kernels.gemm.few_rows import few_rows, in_slices, sixteen_rows, streams
from tuner.kernels.gemm.few_tiles import of_few_tiles
from tuner.kernels.gemm.filling import filled
from tuner.kernels.gemm.matrix_vector import long_vectors, short_vectors
from tuner.kernels.gemm.odd_rows import odd_rows
from tuner.kernels.gemm.space import PLAIN, precision, valid
from tuner.kernels.gemm.tall import is_tall, tall
from tuner.kernels.gemm.whole_tiles import of_whole_tiles
from tuner.kernels.shared.product_copies import Copying, of_copies
from tuner.kernels.shared.product_rows import may_align, padded
from tuner.kernels.shared.tiling import by_waves, rows_walked
from tuner.kernels.spec import Limits, Problem, Value, cdiv

DefaultRule = Callable[[Problem, Limits], Iterator[Mapping[str, Value]]]
"""Yields configs for one kind of products, best first, and none for other products. The first is feasible, unless a
matrix has fewer rows, or columns, than a tile."""


@dataclass(frozen=True)
class DefaultSettings:
    """Settings of tiles by waves, from recorded spaces of an H200; the studies say how each was found."""

    tile_speeds: Mapping[tuple[int, int], float] = field(default_factory=lambda: {
        (128, 256): 1.0, (128, 128): 0.956, (256, 128): 0.952, (64, 256): 0.95, (128, 192): 0.95, (256, 64): 0.846,
        (64, 128): 0.814, (128, 64): 0.687, (64, 64): 0.578, (256, 32): 0.527, (128, 32): 0.451, (64, 32): 0.338,
    })  # fmt: skip
    """Speed of the tensor cores with a tile (BLOCK_M, BLOCK_N), relative to the fastest tile."""
    fewest_rows: int = 64
    """Rows and columns from which a problem is computed in tiles by waves."""
    stage_bytes: int = 48 * 1024
    """Most bytes of a step."""


SETTINGS = DefaultSettings()
COPYING = Copying(estimate, valid, PLAIN, steps=((64, 4), (64, 3), (32, 4)))


def default(problem: Problem, limits: Limits) -> Mapping[str, Value]:
    """Return the config of the rules, or one with a lower estimate: warps with roles, whole tiles, or slices along K.

    If rows are not aligned to 16 bytes, operands may be copied first, except those of tall products.
    """
    whole = of_whole_tiles(problem, alternative(problem, by_rules(problem, limits), limits), limits)
    as_it_lies = of_few_tiles(problem, whole, limits)
    if not may_align(problem) or is_tall(problem):
        return as_it_lies
    return of_copies(COPYING, problem, as_it_lies, lambda: default(padded(problem), limits), limits)


def by_rules(problem: Problem, limits: Limits) -> Mapping[str, Value]:
    """Return the first feasible config of the rules."""
    is_narrow = min(problem["M"], problem["N"]) < SETTINGS.fewest_rows
    configs = (config for rule in (NARROW if is_narrow else WIDE) for config in rule(problem, limits))
    return next(config for config in configs if valid(problem, config, limits))


def waves(problem: Problem, limits: Limits) -> Iterator[Mapping[str, Value]]:
    """Yield tiles in the order of the time that their waves take: whole, in two slices, or shared evenly."""
    for tiling in by_waves(problem, SETTINGS.tile_speeds, limits, even=True):
        block_m, block_n = tiling.block_m, tiling.block_n
        tile: dict[str, Value] = {
            "BLOCK_M": block_m,
            "BLOCK_N": block_n,
            "SPLIT_K": tiling.slices,
            "num_warps": 8 if block_m * block_n > 128 * 128 and block_n != 192 else 4,
            **({"VARIANT": "stream_k", "num_warps": 4} if tiling.even else {}),
        }
        yield from filled(problem, tile, limits, SETTINGS.stage_bytes)


def across_k(problem: Problem, limits: Limits) -> Iterator[Mapping[str, Value]]:
    """Yield the config, on Hopper, of a tf32 product with a factor that does not lie along K.

    wgmma transposes 16-bit factors only. Two warps with the older instructions and all their registers are then
    fastest.
    """
    if limits.capability[0] != 9 or precision(problem) != "tf32" or problem["layout"] == "nt":
        return
    M, N, _ = problem.sizes
    wide = N > 64 and cdiv(M, 64) * cdiv(N, 128) >= limits.sm_count
    yield {
        **PLAIN,
        "BLOCK_M": 64,
        "BLOCK_N": 128 if wide else 64,
        "BLOCK_K": 32,
        "GROUP_M": rows_walked(problem, 64),
        "VARIANT": "tiles",
        "num_warps": 2,
        "num_stages": 3 if wide else 4,
    }


NARROW: tuple[DefaultRule, ...] = (
    long_vectors,
    short_vectors,
    in_slices,
    streams,
    tall,
    odd_rows,
    sixteen_rows,
    few_rows,
)
"""Rules of products with few rows or columns, in the order in which they are asked."""
WIDE: tuple[DefaultRule, ...] = (odd_rows, across_k, waves, few_rows)
"""Rules of all other products."""
