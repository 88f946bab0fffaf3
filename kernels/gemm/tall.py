"""Default config of products with many rows, few columns and a short K, unless the estimate favours warps with roles.

A program has few steps, so it mostly waits for its first loads. Small tiles with few steps in flight leave room for
other programs meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tuner.kernels.gemm.space import PLAIN
from tuner.kernels.shared.product_rows import elements_per_access, transposed
from tuner.kernels.shared.tiling import ALIGNED_BYTES
from tuner.kernels.spec import Limits, Problem, Value, cdiv, itemsize


@dataclass(frozen=True)
class TallSettings:
    """Which products are tall, and their tiles; from 40 products on an H200 (2026-12-01)."""

    rows: int = 8192
    """Fewest rows."""
    columns: tuple[int, int] = (17, 63)
    """Fewest and most columns."""
    k: int = 320
    """Largest K."""
    across_k: int = 160
    """Largest K if rows of a lie across it."""
    shallow_k: int = 160
    """Largest K of which aligned rows are read in steps of 64 bytes."""
    deep_programs: float = 1.7
    """Tiles of 64 rows for each multiprocessor from which unaligned rows are computed in them, not in tiles of 32."""


SETTINGS = TallSettings()


def is_tall(problem: Problem) -> bool:
    """Return whether a 16-bit product has many rows, few columns and a short K, in any layout but nn.

    Rows of a that are loaded element by element have rules of their own.
    """
    M, N, K = problem.sizes
    fewest, most = SETTINGS.columns
    a_is_t, b_is_t = transposed(problem)
    return (
        itemsize(problem.dtype) == 2
        and SETTINGS.rows <= M
        and fewest <= N <= most
        and (SETTINGS.across_k if a_is_t else SETTINGS.k) >= K
        and (a_is_t or b_is_t)
        and elements_per_access(problem, "a") > 1
    )


def tall(problem: Problem, limits: Limits) -> Iterator[Mapping[str, Value]]:
    """Yield the config of a tall product.

    If rows lie across K, tiles of 16 columns leave fewer columns of a tile unused.
    """
    if not is_tall(problem):
        return
    M, N, K = problem.sizes
    is_aligned = K * itemsize(problem.dtype) % ALIGNED_BYTES == 0
    if transposed(problem)[0]:
        tile = {"BLOCK_M": 128, "BLOCK_N": 16} if N <= 48 else {"BLOCK_M": 64, "BLOCK_N": 64}
        more = {"BLOCK_K": 64, "num_warps": 4, "num_stages": 3}
    elif N > 32:
        block_k = min((64, 32), key=lambda depth: cdiv(K, depth) * depth)
        stages = 2 if block_k == 64 else _stages(K, block_k, most=5) if is_aligned else 3
        tile = {"BLOCK_M": 128 if is_aligned else 64, "BLOCK_N": 64}
        more = {"BLOCK_K": block_k, "num_warps": 4, "num_stages": stages}
    elif is_aligned:
        block_k = 32 if SETTINGS.shallow_k >= K else 64
        tile = {"BLOCK_M": 128, "BLOCK_N": 32}
        more = {"BLOCK_K": block_k, "num_warps": 8, "num_stages": _stages(K, block_k, most=5)}
    else:
        block_m = 64 if cdiv(M, 64) >= SETTINGS.deep_programs * limits.sm_count else 32
        tile = {"BLOCK_M": block_m, "BLOCK_N": 32}
        more = {"BLOCK_K": 32, "num_warps": 4, "num_stages": _stages(K, 32, most=4)}
    yield {**PLAIN, "VARIANT": "tiles", **tile, **more}


def _stages(K: int, block_k: int, most: int) -> int:
    """Return the number of stages: as many as there are steps, from two up to `most`."""
    return min(most, max(2, cdiv(K, block_k)))
