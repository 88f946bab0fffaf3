"""Products of matrices by tiles: the rules that hold for all of them, whatever their elements are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tuner.kernels.spec import Limits, Problem, cdiv, itemsize, next_power_of_2

JOINING = 1.4e7
"""What joining two slices costs, in elements of a tile times K: so that 3072^3 goes without (80.8 us, 85.9 with) and
256 x 4096 x 14336 does not (51.7 us, 61.3 without; H200, 2026-11-28, bf16)."""

SHARING = 2.4e7
"""What sharing the last waves evenly costs, likewise: 8 us of 350 at 5120^3."""


def tile_count(problem: Problem, config: Mapping[str, Any]) -> int:
    M, N, _ = problem.sizes
    return cdiv(M, config["BLOCK_M"]) * cdiv(N, config["BLOCK_N"])


def stage_bytes(problem: Problem, config: Mapping[str, Any]) -> int:
    """Shared memory that one step's tiles of a and b take."""
    return (config["BLOCK_M"] + config["BLOCK_N"]) * config["BLOCK_K"] * itemsize(problem.dtype)


def describable(matrix: Any, is_t: bool = False) -> bool:
    """Whether the copy engine can address it: rows (columns, if it `is_t`) without gaps, all aligned to 16 bytes."""
    inner, outer = (0, 1) if is_t else (1, 0)
    return (
        matrix.stride(inner) == 1
        and matrix.stride(outer) > 0
        and matrix.stride(outer) * matrix.dtype.itemsize % 16 == 0
        and matrix.data_ptr() % 16 == 0
    )


def suits(problem: Problem, config: Mapping[str, Any], limits: Limits, least: int = 16) -> bool:
    """Whether a tile, of `least` rows and columns at least, and its place in the order have a use here."""
    M, N, K = problem.sizes
    rows = cdiv(M, config["BLOCK_M"])
    return (
        # A tile larger than the matrix computes rows that nobody reads.
        config["BLOCK_M"] <= max(least, next_power_of_2(M))
        and config["BLOCK_N"] <= max(least, next_power_of_2(N))
        and config["BLOCK_K"] <= max(64, next_power_of_2(K))
        # Grouping more rows of tiles than there are changes nothing, and two are for where there are no more.
        and config["GROUP_M"] <= next_power_of_2(rows)
        and (config["GROUP_M"] != 2 or rows == 2)
        and config["num_warps"] * limits.warp_size <= limits.threads_per_block
    )


def accumulators_fit(problem: Problem, config: Mapping[str, Any], limits: Limits, held: int | None = None) -> bool:
    """What the tensor cores ask of a tile and of the warps that share it.

    Args:
        held: fp32 sums in registers at once, where those are not a tile's.
    """
    M, N, _ = problem.sizes
    block_m, block_n, threads = config["BLOCK_M"], config["BLOCK_N"], config["num_warps"] * limits.warp_size
    sums = block_m * block_n if held is None else held
    return (
        # 16-wide tiles starve the tensor cores; they are for matrices with few rows.
        (min(block_m, block_n) > 16 or min(M, N) <= 64)
        # The sums live in registers, beside at least something else: a tile that fills or spills them is refused by
        # ptxas or compiles for minutes.
        and sums < min(threads * limits.registers_per_thread, limits.registers_per_sm)
        # Enough of the tile for each warp to own one 16 x 8 tensor-core tile.
        and block_m * block_n >= config["num_warps"] * 16 * 8
    )


def by_threads(problem: Problem, config: Mapping[str, Any], a_along_k: bool, b_along_k: bool) -> dict[str, Any]:
    """What `gemm_vectors` is compiled with, beside its tile: which factor each program reads something else of, which
    is wider (of a tile as wide as it is high, the product's), and how threads lie along K.

    Each loads 16 bytes of the wider factor, in the layout that Triton gives it, so that what a thread adds up is its
    own: RUN neighbours along K, and THREADS threads.
    """
    M, N, K = problem.sizes
    block_m, block_n, block_k = config["BLOCK_M"], config["BLOCK_N"], config["BLOCK_K"]
    b_is_wider = (block_n, N) >= (block_m, M)
    width, threads = 16 // itemsize(problem.dtype), 32 * config["num_warps"]
    if b_along_k if b_is_wider else a_along_k:
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
    }


def threads_can(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """What is asked of a tile whose products threads make, without tensor cores."""
    M, N, _ = problem.sizes
    block_m, block_n, threads = config["BLOCK_M"], config["BLOCK_N"], config["num_warps"] * limits.warp_size
    loaded = max(block_m, block_n) * config["BLOCK_K"] * itemsize(problem.dtype) // threads
    return (
        # Each value is used for all of the few rows: from five on the arithmetic takes longer than the reading.
        min(M, N) <= 4
        and min(block_m, block_n) <= 4
        # One to sixteen loads of 16 bytes for every thread, whose products its registers hold.
        and 16 <= loaded <= 256
        and block_m * block_n * config["BLOCK_K"] <= threads * limits.registers_per_thread
    )


def has_steps(problem: Problem, config: Mapping[str, Any]) -> bool:
    """Whether each slice along K has two at least."""
    return config["SPLIT_K"] * config["BLOCK_K"] * 2 <= problem["K"]


def slices_fill(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Whether slices of all tiles give idle multiprocessors work that outweighs adding up their sums."""
    tiles = tile_count(problem, config)
    return tiles <= limits.sm_count and tiles * config["SPLIT_K"] <= 8 * limits.sm_count


def little_left(tiles: int, limits: Limits) -> bool:
    """Whether tiles shared evenly (stream-K) save three quarters of a wave, which a last one would take all the same.

    Sharing costs 8 us at 128 x 256, in which every program writes a tile's sums in fp32 and reads another's. 6.06 waves
    of 5120^3 take 350 us where the best whole tile takes 370, 27.15 of 4096 x 28672 x 4096 1,369 and 1,391, 2.42 of
    2048 x 5120 x 5120 144.5 and 142 (H200, 2026-11-28, bf16). Beyond 32 waves there are 3 % to be won at most.
    """
    left = tiles % limits.sm_count
    return limits.sm_count < tiles < 32 * limits.sm_count and 0 < 4 * left <= limits.sm_count


class Tiling(NamedTuple):
    """A tile, and how the steps along K of all tiles are cut."""

    block_m: int
    block_n: int
    slices: int = 1
    even: bool = False
    """Whether the last waves are shared evenly."""


def by_waves(
    problem: Problem,
    speeds: Mapping[tuple[int, int], float],
    limits: Limits,
    *,
    even: bool = False,
    joining: Mapping[tuple[int, int], float] | None = None,
) -> Iterable[Tiling]:
    """Tiles, whole or in two slices, by how long their waves over the multiprocessors take; the shortest first.

    Only what fills half of a wave at most is cut in slices. Those of a last wave were nowhere faster than the best
    whole tile: 384 x 4096 x 14336 takes 86.8 us in tiles of 64 x 128 with such slices, 76.4 in 128 x 128 (H200,
    2026-11-28).

    Args:
        speeds: of the tensor cores with each tile, over the fastest.
        even: whether tiles can be shared evenly too.
        joining: what that costs for two slices of some tiles, where it is not `JOINING`.
    """
    M, N, K = problem.sizes

    def tiles(block_m: int, block_n: int) -> int:
        return cdiv(M, block_m) * cdiv(N, block_n)

    def waves(tiling: Tiling) -> float:
        tile = tiling.block_m, tiling.block_n
        joined = (joining or {}).get(tile, JOINING)
        each, count = tiling.block_m * tiling.block_n / speeds[tile] / tiling.slices, tiles(*tile) * tiling.slices
        if tiling.even:
            return count / limits.sm_count * each + SHARING / K
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
    """The default's GROUP_M."""
    rows = cdiv(problem["M"], block_m)
    return 2 if rows == 2 else max(group for group in (1, 4, 8) if group <= next_power_of_2(rows))


def flops(problem: Problem) -> int:
    M, N, K = problem.sizes
    return 2 * M * N * K
