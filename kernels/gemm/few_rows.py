"""Default configs of gemm with few rows or columns, on the tensor cores.

Reading the larger factor takes the time, so tiles are chosen by its bytes in flight.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tuner.kernels.gemm.filling import filled
from tuner.kernels.gemm.odd_rows import has_odd_rows
from tuner.kernels.gemm.space import PLAIN, is_described, on_tensor_cores, valid
from tuner.kernels.shared.product_rows import transposed
from tuner.kernels.spec import Limits, Problem, Value, cdiv, itemsize, next_power_of_2


@dataclass(frozen=True)
class FewRowsSettings:
    """Settings of the rules, from an H200; the studies say how each was found."""

    stage_bytes: int = 40 * 1024
    """Most bytes of a step."""
    sixteen_rows_stage_bytes: int = 35 * 1024
    """Most bytes of a step, with up to 16 rows and enough tiles to keep two thirds of the card busy."""
    wave_slack: float = 1.2
    """Most columns walked by the waves of a wide tile, relative to the tile width that walks fewest."""
    bytes_in_flight: int = 12_000_000
    """Bytes of all programs' loads in flight, beyond which they only wait for each other."""
    one_wave_k: int = 1024
    """K below which tiles of up to 16 rows run in one wave if they can: a tile costs most by its first loads."""
    short_k: int = 2048
    """K below which sixteen rows may have tiles of 32 columns of a b that does not lie along K: if tiles of 64 keep at
    most half of the card busy, and these more. 14 x 2816 x 1408 takes 6.1 us, in tiles of 64 columns 7.3. Memory serves
    rows of 64 bytes slowly, so with a long K that is slower: 6 x 2624 x 6880 takes 23.4 and 22.3 us (H200,
    2026-11-30)."""
    stream_programs: int = 3
    """Programs of `streamed` that a multiprocessor holds."""
    stream_least_k: int = 2048
    """K from which `streamed` is faster than `tiles`."""
    stream_bytes: int = 30_000_000
    """Bytes of b from which `streamed` with more than 1.5 programs for each multiprocessor is faster than slices."""
    slices_least_k: int = 1792
    """K from which 5 to 16 rows are cut in slices. 17 products of 5 to 16 rows, 1,152 to 3,072 columns and a K of
    1,856 to 8,960 take 1.00 to 1.05 times as long as their best config, and took 1.07 to 1.33 (H200, 2026-12-01)."""
    slices_programs: int = 3
    """Most slices for each multiprocessor."""


SETTINGS = FewRowsSettings()


def streams(problem: Problem, limits: Limits) -> Iterator[Mapping[str, Value]]:
    """Yield the config of up to 16 rows if columns of b lie along K and all programs run at once.

    With tiles of 16 columns, steps are 512 deep if two programs fit each multiprocessor, and 256 deep if three do.
    Wider products have tiles of 32 columns, three programs for each multiprocessor. With a short K, which `streamed`
    reads in too few steps, `tiles` have three steps of 256 in flight.
    """
    K, few = problem["K"], cdiv(problem["N"], 16)
    is_wide = few > SETTINGS.stream_programs * limits.sm_count
    block_n = 32 if is_wide else 16
    config: dict[str, Value] = {
        **PLAIN,
        "BLOCK_M": 16,
        "BLOCK_N": block_n,
        "BLOCK_K": 512 if few <= 2 * limits.sm_count else 256,
        "VARIANT": "streamed",
        "num_warps": 4,
        "num_stages": 4 if is_wide else 3,
    }
    programs = cdiv(problem["N"], block_n)
    if programs > SETTINGS.stream_programs * limits.sm_count or not valid(problem, config, limits):
        return
    if SETTINGS.stream_least_k <= K:
        yield config
    elif few <= 2 * limits.sm_count:
        yield {**config, "BLOCK_K": 256, "VARIANT": "tiles", "num_warps": 2, "num_stages": 4}


def in_slices(problem: Problem, limits: Limits) -> Iterator[Mapping[str, Value]]:
    """Yield the config of 5 to 16 rows in tiles of 32 columns that lie along K, unless `streamed` is faster.

    There are up to three slices for each multiprocessor. If four slices of a tile are more than that, tiles are whole,
    and keep deep steps in flight.
    """
    M, N, K = problem.sizes
    tiles = cdiv(N, 32)
    is_asked = 4 < M <= 16 and problem["layout"] == "nt" and itemsize(problem.dtype) == 2 and tiles <= limits.sm_count
    has_few_bytes = 2 * cdiv(N, 16) <= 3 * limits.sm_count or SETTINGS.stream_bytes > N * K * 2
    if not is_asked or SETTINGS.slices_least_k > K or not has_few_bytes or has_odd_rows(problem, limits):
        return
    slices = next((slices for slices in (8, 4) if slices * tiles <= SETTINGS.slices_programs * limits.sm_count), 1)
    step = {"BLOCK_K": 64, "num_warps": 2, "num_stages": 6}
    whole = {"BLOCK_K": 256, "num_warps": 4, "num_stages": 5}
    tile: dict[str, Value] = {"BLOCK_M": 16, "BLOCK_N": 32, "VARIANT": "tiles", "SPLIT_K": slices}
    yield {**PLAIN, **tile, **(step if slices > 1 else whole)}


def sixteen_rows(problem: Problem, limits: Limits) -> Iterator[Mapping[str, Value]]:
    """Yield configs of up to 16 rows, the fewest of a tile, with the most stages first.

    Reading b takes all the time. The tile is the widest whose waves walk few columns beyond N, its step the deepest
    that fits, with up to six stages; of a b across K with fewer, if more than 12 MB would be in flight. If columns of b
    lie along K, at least 256 bytes of each are read at once. Descriptors read nothing for missing rows.
    """
    M, N, K = problem.sizes
    b_is_t = transposed(problem)[1]
    leaves_half_idle = 2 * cdiv(N, 64) <= limits.sm_count <= 2 * cdiv(N, 32)
    narrowest = 32 if b_is_t or (SETTINGS.short_k > K and leaves_half_idle) else 64
    widths = [width for width in (256, 128, 64, 32) if narrowest <= width <= next_power_of_2(N)]
    if M > 16 or not widths:
        return
    in_one_wave = [width for width in widths if cdiv(N, width) <= limits.sm_count]
    if SETTINGS.one_wave_k > K and in_one_wave:
        widths = in_one_wave
    walked = {width: cdiv(cdiv(N, width), limits.sm_count) * width for width in widths}  # columns, by the waves of each
    block_n = next(width for width in widths if walked[width] <= SETTINGS.wave_slack * min(walked.values()))
    tiles, column_bytes = cdiv(N, block_n), (16 + block_n) * itemsize(problem.dtype)
    busy = 3 * tiles >= 2 * limits.sm_count
    most_bytes = SETTINGS.sixteen_rows_stage_bytes if busy else SETTINGS.stage_bytes
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
        yield from filled(problem, config | {"num_stages": stages}, limits, limits.shared_bytes)


def few_rows(problem: Problem, limits: Limits) -> Iterator[Mapping[str, Value]]:
    """Yield configs of a problem whose tiles have fewer than 64 rows or columns.

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
    most_bytes = SETTINGS.stage_bytes
    if 2 * cdiv(M, block_m) * cdiv(N, block_n) <= limits.sm_count and min(block_m, block_n) >= 32:
        more = {"BLOCK_M": 16, "num_warps": 2} if block_m == 32 else {"SPLIT_K": 2}
        yield from filled(problem, config | more | {"VARIANT": "tiles", "num_stages": 5}, limits, most_bytes)
    yield from filled(problem, config, limits, most_bytes)
