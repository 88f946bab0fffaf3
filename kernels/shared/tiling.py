"""Rules over the tiles of a matrix product, for any dtype of its elements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import gcd
from typing import Any, NamedTuple

from tuner.kernels.spec import Limits, Problem, cdiv, itemsize, next_power_of_2


@dataclass(frozen=True)
class WaveCosts:
    """Costs of cutting tiles along K, in elements of a tile times K; from bf16 products on an H200."""

    joining: float = 1.4e7
    """Cost of joining two slices of each tile."""
    sharing: float = 2.4e7
    """Cost of sharing the last waves evenly."""
    most_waves: int = 32
    """Number of waves from which the last one is too small a part to be shared."""


WAVE_COSTS = WaveCosts()

LINE_BYTES = 128
"""Bytes of a cache line."""
ALIGNED_BYTES = 16
"""Alignment of addresses and rows that the copy engine needs, in bytes: the most that a thread loads at once."""
DERIVED_MULTIPLE = 16
"""Triton compiles an integer argument with the fact whether this number divides it."""


def tile_count(problem: Problem, config: Mapping[str, Any]) -> int:
    M, N, _ = problem.sizes
    return cdiv(M, config["BLOCK_M"]) * cdiv(N, config["BLOCK_N"])


def stage_bytes(problem: Problem, config: Mapping[str, Any]) -> int:
    """Return the bytes of shared memory that the tiles of a and b take in one step along K."""
    return (config["BLOCK_M"] + config["BLOCK_N"]) * config["BLOCK_K"] * itemsize(problem.dtype)


def on_wgmma(rows: int, warps: int, limits: Limits) -> bool:
    """Return whether Hopper's wgmma multiplies: it takes 64 rows of the left factor, and four warps."""
    return limits.capability[0] == 9 and rows >= 64 and warps >= 4


def describable(matrix: Any, is_t: bool = False) -> bool:
    """Return whether the copy engine can read a matrix: rows (columns, if `is_t`) without gaps, aligned to 16 bytes."""
    inner, outer = (0, 1) if is_t else (1, 0)
    return (
        matrix.stride(inner) == 1
        and matrix.stride(outer) > 0
        and matrix.stride(outer) * matrix.dtype.itemsize % ALIGNED_BYTES == 0
        and matrix.data_ptr() % ALIGNED_BYTES == 0
    )


def vector_elements(matrix: Any, is_t: bool = False) -> int:
    """Return the elements of one access: the most, up to 16 bytes, that divide the length and the stride of a row."""
    inner, outer = (0, 1) if is_t else (1, 0)
    if matrix.stride(inner) != 1:
        return 1
    return gcd(ALIGNED_BYTES // matrix.dtype.itemsize, matrix.shape[inner], matrix.stride(outer))


def stated_multiple(most: int, *numbers: int) -> int:
    """Return the number, up to `most`, of which a kernel states that sizes and strides are multiples.

    The compiler derives alignment from the statement. It is 1 if all are multiples of 16, which the compiler knows.
    """
    return 1 if all(number % DERIVED_MULTIPLE == 0 for number in numbers) else gcd(most, *numbers)


def suits(
    problem: Problem, config: Mapping[str, Any], limits: Limits, rows: int | None = None, least: int = 16
) -> bool:
    """Return whether a tile of at least `least` rows and columns, and its place in the order, fit the problem.

    Args:
        rows: number of rows of tiles, if others than those of a are walked together.
    """
    M, N, K = problem.sizes
    rows = cdiv(M, config["BLOCK_M"]) if rows is None else rows
    return (
        # A tile larger than the matrix computes rows that are not stored.
        config["BLOCK_M"] <= max(least, next_power_of_2(M))
        and config["BLOCK_N"] <= max(least, next_power_of_2(N))
        and config["BLOCK_K"] <= max(64, next_power_of_2(K))
        # Grouping more rows of tiles than there are changes nothing; groups of two are for two rows of tiles.
        and config["GROUP_M"] <= next_power_of_2(rows)
        and (config["GROUP_M"] != 2 or rows == 2)
        and config["num_warps"] * limits.warp_size <= limits.threads_per_block
    )


def accumulators_fit(problem: Problem, config: Mapping[str, Any], limits: Limits, held: int | None = None) -> bool:
    """Return whether the tensor cores can compute a tile with the warps that share it.

    Args:
        held: number of fp32 sums in registers at once; None is one for each element of the tile.
    """
    M, N, _ = problem.sizes
    block_m, block_n, threads = config["BLOCK_M"], config["BLOCK_N"], config["num_warps"] * limits.warp_size
    sums = block_m * block_n if held is None else held
    return (
        # Tiles of 16 keep the tensor cores waiting; they are for matrices with few rows.
        (min(block_m, block_n) > 16 or min(M, N) <= 64)
        # The sums leave some registers free: ptxas refuses a tile that fills or spills them, or compiles for minutes.
        and sums < min(threads * limits.registers_per_thread, limits.registers_per_sm)
        # Each warp has a tensor-core tile of 16 x 8 or more.
        and block_m * block_n >= config["num_warps"] * 16 * 8
    )


def by_threads(
    problem: Problem, config: Mapping[str, Any], a: Any, b: Any, a_is_t: bool, b_is_t: bool
) -> dict[str, Any]:
    """Return what `gemm_vectors` is compiled with, beside its tile.

    A_ONCE and B_ONCE: whether only one program reads each element of a factor. B_IS_WIDER: which factor has the longer
    side of the tile; of a square tile, that of the product. Each thread loads up to 16 bytes of the wider factor in
    Triton's layout, and adds up its own products: RUN neighbours along K, by THREADS threads along K.

    Args:
        a, b: the factors as tensors (M, K) and (K, N).
        a_is_t, b_is_t: whether a factor is the transpose of a matrix with contiguous rows.
    """
    M, N, K = problem.sizes
    block_m, block_n, block_k = config["BLOCK_M"], config["BLOCK_N"], config["BLOCK_K"]
    b_is_wider = (block_n, N) >= (block_m, M)
    a_vec, b_vec = vector_elements(a, a_is_t), vector_elements(b, b_is_t)
    width, threads = b_vec if b_is_wider else a_vec, 32 * config["num_warps"]
    if b_is_t if b_is_wider else not a_is_t:
        run, along_k = width, min(threads, block_k // width)
    else:
        run, along_k = 1, min(threads // max(1, max(block_m, block_n) // width), block_k)
    return {
        "WHOLE_K": K % block_k == 0,
        "RUN": run,
        "THREADS": along_k,
        "A_ONCE": block_n >= N,
        "B_ONCE": block_m >= M,
        "B_IS_WIDER": b_is_wider,
        "A_IS_T": a_is_t,
        "B_IS_T": b_is_t,
        "A_VEC": a_vec,
        "B_VEC": b_vec,
    }


def threads_can(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether threads can compute a tile's products without tensor cores."""
    M, N, _ = problem.sizes
    block_m, block_n, threads = config["BLOCK_M"], config["BLOCK_N"], config["num_warps"] * limits.warp_size
    loaded = max(block_m, block_n) * config["BLOCK_K"] * itemsize(problem.dtype) // threads
    return (
        # Each value is used for all of the few rows; from five rows on, arithmetic takes longer than reading.
        min(M, N) <= 4
        and min(block_m, block_n) <= 4
        # One to sixteen loads of 16 bytes for each thread, and registers for their products.
        and 16 <= loaded <= 256
        and block_m * block_n * config["BLOCK_K"] <= threads * limits.registers_per_thread
    )


def has_steps(problem: Problem, config: Mapping[str, Any]) -> bool:
    """Return whether each slice along K has at least two steps."""
    return config["SPLIT_K"] * 2 <= cdiv(problem["K"], config["BLOCK_K"])


def slices_fill(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether slices of all tiles give idle multiprocessors work that outweighs adding up their sums."""
    tiles = tile_count(problem, config)
    return tiles <= limits.sm_count and tiles * config["SPLIT_K"] <= 8 * limits.sm_count


def fills_one_wave(slices: int, limits: Limits) -> bool:
    """Return whether all slices run at once, on more than half of the multiprocessors."""
    return limits.sm_count < 2 * slices <= 2 * limits.sm_count


def little_left(tiles: int, limits: Limits) -> bool:
    """Return whether sharing the last waves evenly (stream-K) saves three quarters of a wave or more.

    A last wave takes as long as a full one. Sharing makes each program write a tile's sums in fp32 and read another's.
    """
    left = tiles % limits.sm_count
    return limits.sm_count < tiles < WAVE_COSTS.most_waves * limits.sm_count and 0 < 4 * left <= limits.sm_count


class Tiling(NamedTuple):
    """A tile, and the cut of all tiles along K."""

    block_m: int
    block_n: int
    slices: int = 1
    even: bool = False
    """True if all programs share the last waves evenly."""


def by_waves(
    problem: Problem,
    speeds: Mapping[tuple[int, int], float],
    limits: Limits,
    *,
    even: bool = False,
    joining: Mapping[tuple[int, int], float] | None = None,
) -> Iterable[Tiling]:
    """Return tiles, whole or in two slices, by how long their waves over the multiprocessors take; shortest first.

    Tiles are cut in slices if they fill half of a wave at most.

    Args:
        speeds: speed of the tensor cores with each tile, relative to the fastest.
        even: whether tiles can be shared evenly too.
        joining: cost of joining two slices of some tiles, instead of `WaveCosts.joining`.
    """
    M, N, K = problem.sizes

    def tiles(block_m: int, block_n: int) -> int:
        return cdiv(M, block_m) * cdiv(N, block_n)

    def waves(tiling: Tiling) -> float:
        tile = tiling.block_m, tiling.block_n
        joined = (joining or {}).get(tile, WAVE_COSTS.joining)
        each, count = tiling.block_m * tiling.block_n / speeds[tile] / tiling.slices, tiles(*tile) * tiling.slices
        if tiling.even:
            return count / limits.sm_count * each + WAVE_COSTS.sharing / K
        return cdiv(count, limits.sm_count) * each + (joined / K if tiling.slices > 1 else 0)

    return sorted(
        [
            *(Tiling(*tile) for tile in speeds),
            *(Tiling(*tile, slices=2) for tile in speeds if 2 * tiles(*tile) <= limits.sm_count),
            *(Tiling(*tile, even=True) for tile in speeds if even and little_left(tiles(*tile), limits)),
        ],
        key=waves,
    )


def rows_walked(problem: Problem, block_m: int) -> int:
    """Return the default number of rows of tiles walked together, GROUP_M."""
    rows = cdiv(problem["M"], block_m)
    return 2 if rows == 2 else max(group for group in (1, 4, 8) if group <= next_power_of_2(rows))


def flops(problem: Problem) -> int:
    """Return the number of floating-point operations: a product and a sum for each step along K."""
    M, N, K = problem.sizes
    return 2 * M * N * K
