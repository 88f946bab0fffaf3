"""Default config of 16-bit products with rows of an odd number of elements, if descriptors cannot read them.

Every second row begins at an odd multiple of 2 bytes, so each of its elements is loaded by an instruction of its own,
and such loads are not asynchronous. Tiles must then be small for their number of threads: with more elements for each
thread than registers hold, a product takes 2 to 20 times as long.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tuner.kernels.gemm.matrix_vector import config_of, lies_along_k
from tuner.kernels.gemm.space import PLAIN, is_described, reads_elements
from tuner.kernels.shared.tiling import rows_walked
from tuner.kernels.spec import Limits, Problem, Value, cdiv, next_power_of_2


@dataclass(frozen=True)
class OddRowsSettings:
    """Settings of the rule, from an H200."""

    large: tuple[int, int, int] = (128, 128, 16)
    """Rows, columns and warps of a tile, if all tiles of this size fill the card twice."""
    tall: tuple[int, int, int] = (128, 64, 8)
    """Rows, columns and warps of a tile of other products."""
    flat: tuple[int, int, int] = (64, 128, 8)
    """Rows, columns and warps of a tile with at most 64 rows."""
    least_side: int = 32
    """Rows and columns down to which a tile is halved while there are tiles for half of the multiprocessors at most and
    K is not cut."""
    least_warps: int = 4
    """Fewest warps of such a tile."""
    block_k: int = 64
    """Elements along K of a step."""
    slice_k: int = 1024
    """Fewest elements along K of a slice."""
    short_k: int = 1024
    """K below which one vector reads all of it at once, and tiles are halved while they are few."""
    waves: int = 2
    """Tiles and slices for each multiprocessor, beyond which K is not cut."""
    vectors: tuple[int, int, int] = (16, 128, 4)
    """Rows of the larger factor, elements along K and warps of a program without tensor cores."""
    short_vectors: tuple[int, int, int] = (2, 8, 4)
    """The same for one vector, if K is short and rows lie along it: rows of the larger factor for each of few programs
    and of many, and warps. A program reads all of K at once."""
    most_vectors: int = 4
    """Most rows, or columns, that are computed without tensor cores."""
    thread_elements: int = 8
    """Fewest elements of the larger factor for each thread of such a program."""


SETTINGS = OddRowsSettings()


def has_odd_rows(problem: Problem, limits: Limits) -> bool:
    """Return whether `tiles` computes a product, and loads elements of a or b one by one."""
    return reads_elements(problem) and not is_described(problem, limits)


def odd_rows(problem: Problem, limits: Limits) -> Iterator[Mapping[str, Value]]:
    """Yield configs of a product with odd rows."""
    if has_odd_rows(problem, limits):
        yield from _by_vectors(problem, limits)
        yield _by_tiles(problem, limits)


def _by_vectors(problem: Problem, limits: Limits) -> Iterator[Mapping[str, Value]]:
    """Yield rows of the larger factor for each program; with a short K all of it at once, if they lie along it.

    Few rows of a very short K have too few elements for all threads. Then programs have more rows, or none are yielded.
    """
    M, N, K = problem.sizes
    vectors = next_power_of_2(min(M, N))
    is_short = SETTINGS.short_k > K
    if vectors > (1 if is_short else SETTINGS.most_vectors) or (is_short and not lies_along_k(problem)):
        return
    rows, block_k, warps = SETTINGS.vectors
    choices: tuple[int, ...] = (rows,)
    if is_short:
        fewest, most, warps = SETTINGS.short_vectors
        choices = (fewest, most) if cdiv(max(M, N), fewest) <= 4 * limits.sm_count else (most,)
        block_k = max(64, next_power_of_2(K))
    for rows in choices:
        if rows * block_k >= SETTINGS.thread_elements * warps * limits.warp_size:
            yield config_of(problem, vectors, rows, block_k, warps)


def _by_tiles(problem: Problem, limits: Limits) -> Mapping[str, Value]:
    M, N, K = problem.sizes
    most = SETTINGS.waves * limits.sm_count
    block_m, block_n, warps = SETTINGS.large
    if cdiv(M, block_m) * cdiv(N, block_n) < most:
        block_m, block_n, warps = SETTINGS.tall if SETTINGS.flat[0] < M else SETTINGS.flat
    block_m, block_n = (max(16, min(next_power_of_2(size), block)) for size, block in ((M, block_m), (N, block_n)))
    fewest_warps = 2
    tiles, slices = cdiv(M, block_m) * cdiv(N, block_n), 1
    while SETTINGS.short_k > K and 2 * tiles <= limits.sm_count and max(block_m, block_n) > SETTINGS.least_side:
        block_m, block_n = (block_m // 2, block_n) if block_m >= block_n else (block_m, block_n // 2)
        tiles, fewest_warps = cdiv(M, block_m) * cdiv(N, block_n), SETTINGS.least_warps
    while tiles <= limits.sm_count and slices * tiles < most and slices * SETTINGS.slice_k <= K and slices < 4:
        slices *= 2
    return {
        **PLAIN,
        "BLOCK_M": block_m,
        "BLOCK_N": block_n,
        "BLOCK_K": SETTINGS.block_k,
        "GROUP_M": rows_walked(problem, block_m),
        "VARIANT": "tiles",
        "SPLIT_K": slices,
        "num_warps": min(warps, max(fewest_warps, block_m * block_n // 1024)),
        "num_stages": 2,
    }
