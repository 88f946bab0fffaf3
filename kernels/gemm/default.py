"""What gemm runs where nothing is tuned: rules over sizes and the card's limits, each with what it rests on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

from tuner.kernels.gemm.space import descriptors_can, on_tensor_cores, precision, transposed, valid
from tuner.kernels.shared.tiling import by_waves, rows_walked, stage_bytes
from tuner.kernels.spec import Limits, Problem, Value, cdiv, itemsize, next_power_of_2

_TILES = {
    (128, 256): 1.0, (128, 128): 0.956, (256, 128): 0.952, (64, 256): 0.95, (128, 192): 0.95, (256, 64): 0.846,
    (64, 128): 0.814, (128, 64): 0.687, (64, 64): 0.578, (256, 32): 0.527, (128, 32): 0.451, (64, 32): 0.338,
}  # fmt: skip
"""How fast the tensor cores are with a tile, over the fastest: the best config of each in the recorded space of 4096^3
bf16 (H200, 2026-11-28), where all fill the card alike; 192 columns, which do not, by how they compare at 3072^3 and at
1024 x 6144 x 4096."""


def default(problem: Problem, limits: Limits) -> Mapping[str, Value]:
    """Of the tiles, whole, in two slices or shared evenly, the one whose waves over the multiprocessors take least.

    Few rows: tiles for the bytes of b, which are what takes the time. One row: no tensor cores.
    """
    M, N, _ = problem.sizes
    if min(M, N) < 64:
        ways = (by_vectors, by_stream, sixteen_rows)
        return next((found for way in ways if (found := way(problem, limits))), None) or few_rows(problem, limits)
    if limits.capability[0] == 9 and precision(problem) == "tf32" and problem["layout"] != "nt":
        return across_k(problem, limits)
    for tiling in by_waves(problem, _TILES, limits, even=True):
        block_m, block_n = tiling.block_m, tiling.block_n
        config: dict[str, Value] = {
            "BLOCK_M": block_m,
            "BLOCK_N": block_n,
            "SPLIT_K": tiling.slices,
            "num_warps": 8 if block_m * block_n > 128 * 128 and block_n != 192 else 4,
            **({"VARIANT": "stream_k", "num_warps": 4} if tiling.even else {}),
        }
        for found in filled(problem, config, limits, most_bytes=48 * 1024):
            return found
    return few_rows(problem, limits)


def by_vectors(problem: Problem, limits: Limits) -> Mapping[str, Value] | None:
    """The default of a matrix times a vector, or times up to four where it lies along K; None where it is too small, or
    the tensor cores are asked for.

    A matrix that lies along K is read a row a program, in steps of 8 KB where they divide it: 18.3 us at
    1 x 6144 x 4096, and 19.3 with four rows a program. For more vectors programs take as many rows, and less of each.
    One that lies across K is read 128 bytes of a row at once, by programs of 16 warps: 38.8 us at 1 x 4096 x 14336,
    40.9 with 8. Where there are more than two of those for each multiprocessor, they are small and share it: 65.4 us at
    1 x 28672 x 4096, 67.5 with 8 (H200, 2026-11-28).
    """
    M, N, K = problem.sizes
    a_is_t, b_is_t = transposed(problem)
    few, many, lies_along_k = ("BLOCK_M", "BLOCK_N", b_is_t) if M <= N else ("BLOCK_N", "BLOCK_M", not a_is_t)
    vectors = next_power_of_2(min(M, N))
    if K < 1024 or vectors > (4 if lies_along_k else 1):
        return None
    if lies_along_k:
        step = 4096 if K % 4096 == 0 else 2048 if K >= 2048 else 1024
        depth, warps = {1: (step, step // 512), 2: (min(step, 2048), 2), 4: (512, 2)}[vectors]
        tile = {many: vectors, "BLOCK_K": depth, "num_warps": warps}
    else:
        columns = 128 // itemsize(problem.dtype)
        small = cdiv(max(M, N), columns) > 2 * limits.sm_count
        tile = {many: columns, "BLOCK_K": 128 if small else 512, "num_warps": 4 if small else 16}
    config: dict[str, Value] = {
        few: vectors,
        "GROUP_M": 1,
        "VARIANT": "vectors",
        "SPLIT_K": 1,
        "STORES": 1,
        "num_stages": 1,
        **tile,
    }
    return config if valid(problem, config, limits) else None


def by_stream(problem: Problem, limits: Limits) -> Mapping[str, Value] | None:
    """The default of up to 16 rows where columns of b lie along K, while all programs run at once; else None.

    Steps are as deep as lets them: two programs of 512 for each multiprocessor, or three of 256. 16 x 4096 x 14336
    takes 38.8 us so, 42.3 in steps of 256 and 41.6 in tiles; 16 x 6144 x 4096 21.4, 21.9 in steps of 512 and 23.6 in
    tiles; 16 x 28672 x 4096, whose programs do not all run at once, 71.4 at best and 70.1 in tiles (H200, 2026-11-28).
    """
    programs = cdiv(problem["N"], 16)
    config: dict[str, Value] = {
        "BLOCK_M": 16,
        "BLOCK_N": 16,
        "BLOCK_K": 512 if programs <= 2 * limits.sm_count else 256,
        "GROUP_M": 1,
        "VARIANT": "streamed",
        "SPLIT_K": 1,
        "STORES": 1,
        "num_warps": 4,
        "num_stages": 3,
    }
    return config if programs <= 3 * limits.sm_count and valid(problem, config, limits) else None


def across_k(problem: Problem, limits: Limits) -> Mapping[str, Value]:
    """The default of a tf32 product of which a factor does not lie along K, on Hopper.

    Its wgmma turns 16-bit factors around, not these. Two warps with the older instructions and all their registers are
    then fastest by far: 95.3 us at 2048^3, where more take 117 at best and cuBLAS 51.3 (H200, 2026-11-28).
    """
    M, N, _ = problem.sizes
    wide = N > 64 and cdiv(M, 64) * cdiv(N, 128) >= limits.sm_count
    return {
        "BLOCK_M": 64,
        "BLOCK_N": 128 if wide else 64,
        "BLOCK_K": 32,
        "GROUP_M": rows_walked(problem, 64),
        "VARIANT": "tiles",
        "SPLIT_K": 1,
        "STORES": 1,
        "num_warps": 2,
        "num_stages": 3 if wide else 4,
    }


def sixteen_rows(problem: Problem, limits: Limits) -> Mapping[str, Value] | None:
    """The default of up to 16 rows, which a tile has at least; None where there are more, or it does not fit.

    All the time goes by reading b. So tiles are as wide as their waves allow, and steps as deep as leaves six of them:
    16 x 6144 x 4096 takes 22.1 us in steps of 20 KB and 23.7 in ones of 40, 16 x 28672 x 4096 67.0 in tiles of 256
    columns and 71.7 of 128. Columns of b that are its rows want 256 bytes at once. Else more than 12 MB on their way
    only wait for each other: 16 x 4096 x 4096 takes 17.2 us with five stages and 17.7 with six. Descriptors fetch
    nothing in place of rows that are missing (H200, 2026-11-28).
    """
    M, N, _ = problem.sizes
    b_is_t = transposed(problem)[1]
    widths = [width for width in (256, 128, 64, 32) if width <= next_power_of_2(N) and (b_is_t or width > 32)]
    if M > 16 or not widths:
        return None
    walked = {width: cdiv(cdiv(N, width), limits.sm_count) * width for width in widths}  # columns, by the waves of each
    block_n = next(width for width in widths if walked[width] <= 1.2 * min(walked.values()))
    tiles, column_bytes = cdiv(N, block_n), (16 + block_n) * itemsize(problem.dtype)
    most_bytes = 35 * 1024 if 3 * tiles >= 2 * limits.sm_count else 40 * 1024
    block_k = next(depth for depth in (256, 128, 64, 32) if depth * column_bytes <= most_bytes or depth == 32)
    if b_is_t:
        block_k = max(block_k, 128)
    on_their_way = 12_000_000 // (min(tiles, limits.sm_count) * block_k * column_bytes)
    described = M <= 8 and descriptors_can(problem, limits) and on_tensor_cores(problem)
    config: dict[str, Value] = {
        "BLOCK_M": 16,
        "BLOCK_N": block_n,
        "BLOCK_K": block_k,
        "VARIANT": "persistent" if described else "tiles",
        "SPLIT_K": 1,
        "num_warps": 4 if described or b_is_t else 2,
    }
    most_stages = 6 if b_is_t else min(6, max(3, 1 + on_their_way))
    for stages in range(most_stages, 1, -1):
        for found in filled(problem, config | {"num_stages": stages}, limits, most_bytes=limits.shared_bytes):
            return found
    return None


def few_rows(problem: Problem, limits: Limits) -> Mapping[str, Value]:
    """The default where a tile has fewer than 64 rows or columns.

    Where the narrowest tiles leave half of the multiprocessors idle, rows are cut in two, though b is then read twice
    from L2, or K is: 32 x 4096 x 4096 takes 17.5 us in tiles of 16 rows and 21.7 in ones of 32, 48 x 4096 x 14336 takes
    42.3 in two slices and 44.6 in one (H200, 2026-11-28).
    """
    M, N, _ = problem.sizes
    block_m = min(128, max(16, next_power_of_2(M)))
    block_n = min(256, max(16, next_power_of_2(N)))
    narrowest = 32 if transposed(problem)[1] else 64  # b's rows, 128 bytes of each at least
    while cdiv(M, block_m) * cdiv(N, block_n) < limits.sm_count and max(block_m, block_n // 2) > 32:
        if block_m > block_n:
            block_m //= 2
        elif block_n > narrowest:
            block_n //= 2
        else:
            break
    config: dict[str, Value] = {
        "BLOCK_M": block_m,
        "BLOCK_N": block_n,
        "SPLIT_K": 1,
        "num_warps": 4 if block_m * block_n > 16 * 16 else 2,
    }
    if 2 * cdiv(M, block_m) * cdiv(N, block_n) <= limits.sm_count and min(block_m, block_n) >= 32:
        more = {"BLOCK_M": 16, "num_warps": 2} if block_m == 32 else {"SPLIT_K": 2}
        for found in filled(problem, config | more | {"VARIANT": "tiles", "num_stages": 5}, limits, 40 * 1024):
            return found
    return next(filled(problem, config, limits, most_bytes=40 * 1024))


def filled(
    problem: Problem, config: Mapping[str, Value], limits: Limits, most_bytes: int
) -> Iterator[Mapping[str, Value]]:
    """A tile with its order, and what it leaves open: the variant, the deepest steps and the most stages that fit."""
    group_m = rows_walked(problem, int(config["BLOCK_M"]))
    for variant in ("persistent", "specialized", "tiles"):
        for block_k in (256, 128, 64, 32):
            for stages, stores in product((6, 5, 4, 3, 2), (1, 2)):
                more = {"BLOCK_K": block_k, "VARIANT": variant, "STORES": stores, "num_stages": stages}
                full = {"GROUP_M": group_m, **more, **config}
                if stage_bytes(problem, full) <= most_bytes and valid(problem, full, limits):
                    yield full
