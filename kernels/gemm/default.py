"""Default config of gemm: rules over sizes and the limits of the card."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from tuner.kernels.gemm.alternatives import alternative
from tuner.kernels.gemm.estimate import estimate
from tuner.kernels.gemm.few_tiles import of_few_tiles, of_whole_tiles
from tuner.kernels.gemm.odd_rows import has_odd_rows, of_odd_rows
from tuner.kernels.gemm.space import DEFAULTS, PLAIN, WITH_ROLES, is_described, on_tensor_cores, precision, valid
from tuner.kernels.shared.product_copies import Copying, of_copies
from tuner.kernels.shared.product_rows import may_align, padded, transposed, unaligned
from tuner.kernels.shared.tiling import ALIGNED_BYTES, by_waves, rows_walked, stage_bytes
from tuner.kernels.spec import Limits, Problem, Value, cdiv, itemsize, next_power_of_2


@dataclass(frozen=True)
class DefaultSettings:
    """Settings of the rules, from recorded spaces of an H200; the studies say how each was found."""

    tile_speeds: Mapping[tuple[int, int], float] = field(default_factory=lambda: {
        (128, 256): 1.0, (128, 128): 0.956, (256, 128): 0.952, (64, 256): 0.95, (128, 192): 0.95, (256, 64): 0.846,
        (64, 128): 0.814, (128, 64): 0.687, (64, 64): 0.578, (256, 32): 0.527, (128, 32): 0.451, (64, 32): 0.338,
    })  # fmt: skip
    """Speed of the tensor cores with a tile (BLOCK_M, BLOCK_N), relative to the fastest tile."""
    fewest_rows: int = 64
    """Rows and columns from which a problem is computed in tiles by waves."""
    stage_bytes: int = 48 * 1024
    """Most bytes of a step of tiles by waves."""
    few_rows_stage_bytes: int = 40 * 1024
    """Most bytes of a step, with few rows."""
    sixteen_rows_stage_bytes: int = 35 * 1024
    """Most bytes of a step, with up to 16 rows and enough tiles to keep two thirds of the card busy."""
    wave_slack: float = 1.2
    """Most columns walked by the waves of a wide tile, relative to the tile width that walks fewest."""
    depth_slack: float = 1.2
    """Most elements along K of all steps of one depth, relative to the depth that walks fewest."""
    short_k: int = 2048
    """K below which sixteen rows may have tiles of 32 columns of a b that does not lie along K: if tiles of 64 keep at
    most half of the card busy, and these more. 14 x 2816 x 1408 takes 6.1 us, in tiles of 64 columns 7.3. Memory serves
    rows of 64 bytes slowly, so with a long K that is slower: 6 x 2624 x 6880 takes 23.4 and 22.3 us (H200,
    2026-11-30)."""
    bytes_in_flight: int = 12_000_000
    """Bytes of all programs' loads in flight, beyond which they only wait for each other."""
    vectors_least_k: int = 1024
    """K from which a product with few rows is computed without tensor cores."""
    small_vector_matrix: int = 2**20
    """Elements of a matrix with shorter rows up to which vectors are computed without tensor cores if the rows are no
    multiples of 16 elements, of which Triton loads fewer than 16 bytes at once."""
    short_vector_elements: int = 2048
    """Elements of rows that lie along K in a program, if K is short."""
    short_vector_programs: tuple[int, int] = (4, 10)
    """Programs for each multiprocessor, below which they have fewer rows, and beyond which they have more."""
    stream_programs: int = 3
    """Programs of `streamed` that a multiprocessor holds."""
    stream_least_k: int = 2048
    """K from which `streamed` is faster than `tiles`."""
    stream_bytes: int = 30_000_000
    """Bytes of b from which `streamed` with more than 1.5 programs for each multiprocessor is faster than slices."""
    slices_least_k: int = 1792
    """K from which 5 to 16 rows are cut in slices. 17 products of 5 to 16 rows, 1,152 to 3,072 columns and a K of
    1,856 to 8,960 take 1.00 to 1.05 times as long as their best config, and took 1.07 to 1.33 (H200, 2026-12-01)."""
    tall_rows: int = 8192
    """Rows from which few columns and a short K are computed in tiles for many programs."""
    tall_k: int = 320
    """Largest K for which many rows are computed so."""
    tall_across_k: int = 160
    """The same for rows that lie across K. Rows along K are read in steps of 64 bytes up to this K."""


SETTINGS = DefaultSettings()
COPYING = Copying(estimate, valid, PLAIN, steps=((64, 4), (64, 3), (32, 4)))


def default(problem: Problem, limits: Limits) -> Mapping[str, Value]:
    """Return the config of the rules, or one that the estimate finds faster: of warps with roles, else of slices.

    Operands that are not aligned may be copied first, but not those of many programs with a short K.
    """
    rules = by_rules(problem, limits)
    whole = of_whole_tiles(problem, alternative(problem, rules, limits), limits)
    as_it_lies = of_few_tiles(problem, whole, limits)
    if not may_align(problem) or rules == tall(problem, limits):
        return as_it_lies
    return of_copies(COPYING, problem, as_it_lies, lambda: default(padded(problem), limits), limits)


def by_rules(problem: Problem, limits: Limits) -> Mapping[str, Value]:
    """Return the tile whose waves over the multiprocessors take least: whole, in two slices, or shared evenly.

    With few rows, reading b takes the time, so tiles are chosen by its bytes. With one row, tensor cores are not used.
    """
    M, N, _ = problem.sizes
    is_narrow = min(M, N) < SETTINGS.fewest_rows
    ways = (by_vectors, by_stream, tall, of_odd_rows, sixteen_rows) if is_narrow else (of_odd_rows,)
    if config := next((found for way in ways if (found := way(problem, limits))), None):
        return config
    if is_narrow:
        return few_rows(problem, limits)
    if limits.capability[0] == 9 and precision(problem) == "tf32" and problem["layout"] != "nt":
        return across_k(problem, limits)
    for tiling in by_waves(problem, SETTINGS.tile_speeds, limits, even=True):
        block_m, block_n = tiling.block_m, tiling.block_n
        tile: dict[str, Value] = {
            "BLOCK_M": block_m,
            "BLOCK_N": block_n,
            "SPLIT_K": tiling.slices,
            "num_warps": 8 if block_m * block_n > 128 * 128 and block_n != 192 else 4,
            **({"VARIANT": "stream_k", "num_warps": 4} if tiling.even else {}),
        }
        for found in filled(problem, tile, limits, SETTINGS.stage_bytes):
            return found
    return few_rows(problem, limits)


def by_vectors(problem: Problem, limits: Limits) -> Mapping[str, Value] | None:
    """Return the default of a matrix times a vector, or times up to four vectors if it lies along K; else None.

    None too if the tensor cores are asked for, or there are three or four vectors and more rows than run at once in
    programs of 16: tensor cores are then 1.0 to 1.28 times as fast.

    A matrix that lies along K is read by one row for each program, in steps of 8 or 4 KB if they divide it, else by one
    row or two in steps of 2 KB; for more vectors, programs take as many rows and a shorter step of each. A matrix that
    lies across K is read 128 bytes of a row at once, by programs of 16 warps. With more than two such programs for each
    multiprocessor, smaller programs share it. While there is less than one for every second multiprocessor, programs
    read half as much of a row.
    """
    M, N, K = problem.sizes
    a_is_t, b_is_t = transposed(problem)
    few, many, lies_along_k = ("BLOCK_M", "BLOCK_N", b_is_t) if M <= N else ("BLOCK_N", "BLOCK_M", not a_is_t)
    vectors = next_power_of_2(min(M, N))
    if vectors > (4 if lies_along_k else 1):
        return None
    if SETTINGS.vectors_least_k > K:
        return by_short_vectors(problem, few, many, lies_along_k, limits)
    many_rows = M <= N and cdiv(N, 16) > SETTINGS.stream_programs * limits.sm_count
    if vectors == 4 and many_rows and on_tensor_cores(problem) and not unaligned(problem):
        return None
    if lies_along_k:
        step = next(step for step in (4096, 2048, 1024, 512) if K % step == 0 or step == 512)
        alone = (1, step, step // 512) if step >= 2048 else (1 if max(M, N) < 16 * limits.sm_count else 2, 1024, 2)
        rows, depth, warps = {1: alone, 2: (2, min(step, 2048), 2), 4: (4, 512, 2)}[vectors]
        tile = {many: rows, "BLOCK_K": depth, "num_warps": warps}
    else:
        columns = 128 // itemsize(problem.dtype)
        small = cdiv(max(M, N), columns) > 2 * limits.sm_count
        while 2 * cdiv(max(M, N), columns) < limits.sm_count and columns * itemsize(problem.dtype) > 32:
            columns //= 2
        tile = {many: columns, "BLOCK_K": 128 if small else 512, "num_warps": 4 if small else 16}
    config: dict[str, Value] = {**PLAIN, few: vectors, "VARIANT": "vectors", "num_stages": 1, **tile}
    return config if valid(problem, config, limits) else None


def by_short_vectors(
    problem: Problem, few: str, many: str, lies_along_k: bool, limits: Limits
) -> Mapping[str, Value] | None:
    """Return the default of up to four vectors with a short K, which a program reads at once; None if there is none.

    Odd rows have rules of their own. A small matrix is read once for each vector, so that there are more programs.

    Args:
        few, many: names of the sides of a tile along the vectors and along the matrix.
        lies_along_k: whether rows of the matrix lie along K.
    """
    M, N, K = problem.sizes
    rows, vectors, depth = max(M, N), min(M, N), next_power_of_2(K)
    is_small = rows * K <= SETTINGS.small_vector_matrix
    is_loaded = K % 16 == 0 or not lies_along_k
    if itemsize(problem.dtype) != 2 or not (is_small or is_loaded) or has_odd_rows(problem, limits):
        return None
    each = 1 if is_small else next_power_of_2(vectors)
    if not lies_along_k:
        columns = 32 if 2 * cdiv(rows, 32) >= limits.sm_count else 16
        depth = depth if depth <= 512 or columns == 16 else 256
        tile = {many: columns, "num_warps": 2 if depth <= 128 else 4}
    elif vectors == 1:
        fewest, most = (count * limits.sm_count for count in SETTINGS.short_vector_programs)
        count = max(2, SETTINGS.short_vector_elements // depth)
        while count > 2 and cdiv(rows, count) < fewest:
            count //= 2
        while cdiv(rows, count) > most:
            count *= 2
        tile = {many: count, "num_warps": 2 if count * depth <= 1024 else 4}
    else:
        tile = {many: 4, "num_warps": 2 if depth <= 256 or not is_small else 4}
    config: dict[str, Value] = {**PLAIN, few: each, "VARIANT": "vectors", "BLOCK_K": depth, "num_stages": 1, **tile}
    return config if valid(problem, config, limits) else None


def by_stream(problem: Problem, limits: Limits) -> Mapping[str, Value] | None:
    """Return the default of up to 16 rows if columns of b lie along K and all programs run at once; else None.

    Of 16 columns a program, steps are as deep as that allows: two programs of 512 for each multiprocessor, or three of
    256. Three programs of 32 columns take up to twice as many. With a short K, which `streamed` reads in too few steps,
    `tiles` have three steps of 256 in flight. Slices of `tiles` are faster for small matrices.
    """
    K, few = problem["K"], cdiv(problem["N"], 16)
    has_few_bytes = 2 * few <= 3 * limits.sm_count or problem["N"] * K * 2 < SETTINGS.stream_bytes
    if SETTINGS.slices_least_k <= K and has_few_bytes and (found := in_slices(problem, limits)):
        return found
    is_wide = few > SETTINGS.stream_programs * limits.sm_count
    config: dict[str, Value] = {
        **PLAIN,
        "BLOCK_M": 16,
        "BLOCK_N": 32 if is_wide else 16,
        "BLOCK_K": 512 if few <= 2 * limits.sm_count else 256,
        "VARIANT": "streamed",
        "num_warps": 4,
        "num_stages": 4 if is_wide else 3,
    }
    programs = cdiv(problem["N"], int(str(config["BLOCK_N"])))
    if programs > SETTINGS.stream_programs * limits.sm_count or not valid(problem, config, limits):
        return None
    if SETTINGS.stream_least_k <= K:
        return config
    short = {**config, "BLOCK_K": 256, "VARIANT": "tiles", "num_warps": 2, "num_stages": 4}
    return short if few <= 2 * limits.sm_count and valid(problem, short, limits) else None


def in_slices(problem: Problem, limits: Limits) -> Mapping[str, Value] | None:
    """Return the default of 5 to 16 rows in tiles of 32 columns that lie along K, or None if those are too many.

    There are up to three slices for each multiprocessor. If four slices of a tile are more than that, tiles are whole,
    and keep deep steps in flight.
    """
    tiles = cdiv(problem["N"], 32)
    is_asked = 4 < problem["M"] <= 16 and problem["layout"] == "nt" and itemsize(problem.dtype) == 2
    if not is_asked or tiles > limits.sm_count:
        return None
    slices = next((slices for slices in (8, 4) if slices * tiles <= 3 * limits.sm_count), 1)
    step = {"BLOCK_K": 64, "num_warps": 2, "num_stages": 6}
    whole = {"BLOCK_K": 256, "num_warps": 4, "num_stages": 5}
    config: dict[str, Value] = {**PLAIN, "BLOCK_M": 16, "BLOCK_N": 32, "VARIANT": "tiles", "SPLIT_K": slices}
    config |= step if slices > 1 else whole
    return config if valid(problem, config, limits) else None


def tall(problem: Problem, limits: Limits) -> Mapping[str, Value] | None:
    """Return the default of many rows, 17 to 63 columns and a short K; None for others.

    A program has few steps, so it mostly waits for its first loads. Small tiles with few steps in flight leave room for
    other programs meanwhile. If rows lie across K, tiles of 16 columns leave fewer columns of a tile unused.
    """
    M, N, K = problem.sizes
    is_tall = SETTINGS.tall_rows <= M and 16 < N < SETTINGS.fewest_rows and SETTINGS.tall_k >= K
    a_is_t, b_is_t = transposed(problem)
    is_read, is_aligned = a_is_t or (b_is_t and not has_odd_rows(problem, limits)), K * 2 % ALIGNED_BYTES == 0
    if not is_tall or not is_read or itemsize(problem.dtype) != 2:
        return None
    if a_is_t and SETTINGS.tall_across_k < K:
        return None
    if a_is_t:
        side = {"BLOCK_M": 128, "BLOCK_N": 16} if N <= 48 else {"BLOCK_M": 64, "BLOCK_N": 64}
        tile = {**side, "BLOCK_K": 64, "num_warps": 4, "num_stages": 3}
    elif N > 32:
        block_k = min((64, 32), key=lambda depth: cdiv(K, depth) * depth)
        stages = 2 if block_k == 64 else min(5, max(2, cdiv(K, 32))) if is_aligned else 3
        tile = {"BLOCK_M": 128 if is_aligned else 64, "BLOCK_N": 64, "BLOCK_K": block_k}
        tile |= {"num_warps": 4, "num_stages": stages}
    elif is_aligned:
        block_k = 32 if SETTINGS.tall_across_k >= K else 64
        tile = {"BLOCK_M": 128, "BLOCK_N": 32, "BLOCK_K": block_k, "num_warps": 8}
        tile["num_stages"] = min(5, max(2, cdiv(K, block_k)))
    else:
        block_m = 64 if 10 * cdiv(M, 64) >= 17 * limits.sm_count else 32
        tile = {"BLOCK_M": block_m, "BLOCK_N": 32, "BLOCK_K": 32, "num_warps": 4}
        tile["num_stages"] = min(4, max(2, cdiv(K, 32)))
    config: dict[str, Value] = {**PLAIN, "VARIANT": "tiles", **tile}
    return config if valid(problem, config, limits) else None


def across_k(problem: Problem, limits: Limits) -> Mapping[str, Value]:
    """Return the default, on Hopper, of a tf32 product with a factor that does not lie along K.

    wgmma transposes 16-bit factors only. Two warps with the older instructions and all their registers are then
    fastest.
    """
    M, N, _ = problem.sizes
    wide = N > 64 and cdiv(M, 64) * cdiv(N, 128) >= limits.sm_count
    return {
        **PLAIN,
        "BLOCK_M": 64,
        "BLOCK_N": 128 if wide else 64,
        "BLOCK_K": 32,
        "GROUP_M": rows_walked(problem, 64),
        "VARIANT": "tiles",
        "num_warps": 2,
        "num_stages": 3 if wide else 4,
    }


def sixteen_rows(problem: Problem, limits: Limits) -> Mapping[str, Value] | None:
    """Return the default of up to 16 rows, the fewest of a tile; None for more rows, or if no tile fits.

    Reading b takes all the time. So tiles are as wide as their waves allow, and steps as deep as leaves six of them in
    flight, unless that is more than memory serves at once. If columns of b lie along K, at least 256 bytes of each are
    read at once. Descriptors read nothing for missing rows.
    """
    M, N, K = problem.sizes
    b_is_t = transposed(problem)[1]
    leaves_half_idle = 2 * cdiv(N, 64) <= limits.sm_count <= 2 * cdiv(N, 32)
    narrowest = 32 if b_is_t or (SETTINGS.short_k > K and leaves_half_idle) else 64
    widths = [width for width in (256, 128, 64, 32) if narrowest <= width <= next_power_of_2(N)]
    if M > 16 or not widths:
        return None
    in_one_wave = [width for width in widths if cdiv(N, width) <= limits.sm_count]
    if SETTINGS.vectors_least_k > K and in_one_wave:
        widths = in_one_wave  # a tile costs most by its first loads
    walked = {width: cdiv(cdiv(N, width), limits.sm_count) * width for width in widths}  # columns, by the waves of each
    block_n = next(width for width in widths if walked[width] <= SETTINGS.wave_slack * min(walked.values()))
    tiles, column_bytes = cdiv(N, block_n), (16 + block_n) * itemsize(problem.dtype)
    busy = 3 * tiles >= 2 * limits.sm_count
    most_bytes = SETTINGS.sixteen_rows_stage_bytes if busy else SETTINGS.few_rows_stage_bytes
    block_k = next(depth for depth in (256, 128, 64, 32) if depth * column_bytes <= most_bytes or depth == 32)
    if b_is_t:
        block_k = max(block_k, 128)
    in_flight = SETTINGS.bytes_in_flight // (min(tiles, limits.sm_count) * block_k * column_bytes)
    described = M <= 8 and is_described(problem, limits) and on_tensor_cores(problem)
    config: dict[str, Value] = {
        "BLOCK_M": 16,
        "BLOCK_N": block_n,
        "BLOCK_K": block_k,
        "VARIANT": "persistent" if described else "tiles",
        "SPLIT_K": 1,
        "num_warps": 4 if described or b_is_t else 2,
    }
    most_stages = 6 if b_is_t else min(6, max(3, 1 + in_flight))
    for stages in range(most_stages, 1, -1):
        for found in filled(problem, config | {"num_stages": stages}, limits, limits.shared_bytes):
            return found
    return None


def few_rows(problem: Problem, limits: Limits) -> Mapping[str, Value]:
    """Return the default of a problem whose tiles have fewer than 64 rows or columns.

    If the narrowest tiles leave half of the multiprocessors idle, rows are cut in two, though b is then read twice
    from L2, or K is.
    """
    M, N, _ = problem.sizes
    block_m = min(128, max(16, next_power_of_2(M)))
    block_n = min(256, max(16, next_power_of_2(N)))
    narrowest = 32 if transposed(problem)[1] else 64  # 128 bytes or more of each row of b
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
    most_bytes = SETTINGS.few_rows_stage_bytes
    if 2 * cdiv(M, block_m) * cdiv(N, block_n) <= limits.sm_count and min(block_m, block_n) >= 32:
        more = {"BLOCK_M": 16, "num_warps": 2} if block_m == 32 else {"SPLIT_K": 2}
        for found in filled(problem, config | more | {"VARIANT": "tiles", "num_stages": 5}, limits, most_bytes):
            return found
    return next(filled(problem, config, limits, most_bytes))


def filled(
    problem: Problem, config: Mapping[str, Any], limits: Limits, most_bytes: int
) -> Iterator[Mapping[str, Value]]:
    """Yield feasible configs with a tile, best first: the variant, the deepest steps and the most stages that fit.

    Args:
        config: the tile, and the knobs that are decided already.
        most_bytes: most bytes of a step.
    """
    group_m = rows_walked(problem, int(config["BLOCK_M"]))
    for variant in ("persistent", "specialized", "tiles") if config.get("SPLIT_K", 1) == 1 else ("persistent", "tiles"):
        for block_k in depths_of(problem["K"]):
            steps = cdiv(problem["K"], block_k * config.get("SPLIT_K", 1))
            for stages, stores in product((14, 6, 5, 4, 3, 2), (1, 2)):
                if variant == "tiles" and stages > max(2, steps):
                    continue  # shared memory without a step, which another program could use
                more = {"BLOCK_K": block_k, "VARIANT": variant, "STORES": stores, "num_stages": stages}
                full = {**DEFAULTS, **more, **config}
                full["GROUP_M"] = 1 if full["VARIANT"] in WITH_ROLES else group_m
                if stage_bytes(problem, full) <= most_bytes and valid(problem, full, limits):
                    yield full


def depths_of(K: int) -> tuple[int, ...]:
    """Return the depths of a step, the deepest first, of which the last one is not mostly beyond the end of K.

    With few steps, what it holds beyond the end is shared memory that bytes in flight could use.
    """
    depths = (256, 128, 64, 32)
    walked = {depth: cdiv(K, depth) * depth for depth in depths}
    return tuple(depth for depth in depths if walked[depth] <= SETTINGS.depth_slack * min(walked.values()))
