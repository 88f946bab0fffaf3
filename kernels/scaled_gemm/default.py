"""What scaled_gemm runs where nothing is tuned: rules over sizes and the card's limits, each with what it rests on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

from tuner.errors import UsageError
from tuner.kernels.scaled_gemm.space import DESCRIBED, roles_can, sums_held, valid
from tuner.kernels.shared.tiling import by_waves, rows_walked, stage_bytes, tile_count
from tuner.kernels.spec import Limits, Problem, Value, next_power_of_2

_TILES = {
    "fast": {(128, 256): 1.0, (128, 128): 0.98, (64, 256): 0.95, (256, 128): 0.93, (64, 128): 0.87, (128, 64): 0.76},
    "fp32": {(256, 128): 1.0, (128, 128): 0.99, (64, 128): 0.91, (64, 256): 0.85, (128, 64): 0.82},
    "block": {(64, 128): 1.0, (128, 64): 0.93, (128, 128): 0.9},
}
"""How fast the tensor cores are with a tile, over the fastest, by what becomes of its sums: the best of each among some
100 configs at 4096^3 (H200, 2026-11-28), none with roles for its warps."""
_WITH_ROLES = {"fp32": {(128, 256): 1.0, (128, 128): 0.99}, "block": {(128, 128): 1.0}}
_WITHOUT = {"fp32": 0.78, "block": 0.68}
"""The same with roles, and the fastest tile without over the fastest with them: 4096^3 takes 101 us and 130, in blocks
112 and 166, 1024 x 6144 x 4096 in blocks 45 and 67 (H200, 2026-11-28)."""
_JOINING_WITH_ROLES = 1e7
"""As `JOINING` in `tiling`, where each thread leaves and reads its sums in the order in which it holds them:
256 x 4096 x 14336 takes 34 us in two slices and 46 in one, 256 x 4096 x 4096 17.9 and 18.8, in blocks 18.4 and 20.7
(H200, 2026-11-28)."""


def default(problem: Problem, limits: Limits) -> Mapping[str, Value]:
    """Of the tiles, whole or in two slices, the one whose waves over the multiprocessors take least.

    Few rows: narrow tiles in slices along K, until every multiprocessor has one, for the bytes of b take the time.

    Raises:
        UsageError: the card multiplies no 8-bit floats.
    """
    M, N, _ = problem.sizes
    if limits.capability < (8, 9):
        raise UsageError(
            "scaled_gemm multiplies 8-bit floats on cards of compute capability 8.9 and up, and this one has "
            f"{'.'.join(map(str, limits.capability))}; take gemm on 16-bit ones"
        )
    if min(M, N) < 64:
        return by_vectors(problem, limits) or few_rows(problem, limits)
    sums = "block" if problem["scales"] == "block" else problem["accumulate"]
    with_roles = _WITH_ROLES.get(sums, {}) if roles_can(problem, limits) else {}
    others = _WITHOUT[sums] if with_roles else 1.0
    speeds = {tile: others * speed for tile, speed in _TILES[sums].items()} | with_roles
    joining = dict.fromkeys(with_roles, _JOINING_WITH_ROLES)
    for block_m, block_n, slices, _ in by_waves(problem, speeds, limits, joining=joining):
        config: dict[str, Value] = {"BLOCK_M": block_m, "BLOCK_N": block_n, "SPLIT_K": slices}
        for found in filled(problem, config, limits):
            return found
    return few_rows(problem, limits)


def by_vectors(problem: Problem, limits: Limits) -> Mapping[str, Value] | None:
    """The default of a matrix times one vector or two; None where it is too small, or blocks have scales.

    1 x 28672 x 4096 takes 35.6 us so and 45.6 in slices of tiles, 1 x 4096 x 14336 21.9 and 26.3, 2 x 4096 x 4096 12.2
    and 13.1, 2 x 28672 x 4096 41.7 and 45.4. Four take 59.7 and 45.3 (H200, 2026-11-29).
    """
    vectors = next_power_of_2(min(problem["M"], problem["N"]))
    many, depth = (2, 1024) if vectors == 2 else (2, 4096) if problem["K"] % 4096 == 0 else (1, 2048)
    few, wide = ("BLOCK_M", "BLOCK_N") if problem["M"] <= problem["N"] else ("BLOCK_N", "BLOCK_M")
    config: dict[str, Value] = {
        few: vectors,
        wide: many,
        "BLOCK_K": depth,
        "GROUP_M": 1,
        "VARIANT": "vectors",
        "SPLIT_K": 1,
        "PROGRAMS": 1,
        "num_warps": 2,
        "num_stages": 1,
    }
    return config if vectors <= 2 and problem["K"] >= depth and valid(problem, config, limits) else None


def few_rows(problem: Problem, limits: Limits) -> Mapping[str, Value]:
    """The default where a tile has fewer than 64 rows or columns: programs share a multiprocessor, so none stays."""
    M, N, _ = problem.sizes
    config: dict[str, Value] = {
        "BLOCK_M": min(64, max(16, next_power_of_2(M))),
        "BLOCK_N": min(64, max(16, next_power_of_2(N))),
        "VARIANT": "tiles",
    }
    most = max(1, round(2 * limits.sm_count / tile_count(problem, config)))
    return next(
        found
        for split_k in (16, 8, 4, 2, 1)
        if split_k <= most
        for found in filled(problem, {**config, "SPLIT_K": split_k}, limits)
    )


def filled(problem: Problem, config: Mapping[str, Value], limits: Limits) -> Iterator[Mapping[str, Value]]:
    """A tile with its order, a variant, the warps that its sums want, and the most stages that fit.

    Sums of blocks wait for their scales, too: programs that share a multiprocessor fill each other's gaps.
    """
    group_m = rows_walked(problem, int(config["BLOCK_M"]))
    few = sums_held(problem, {**config, "num_warps": 4}, limits) <= 128 * 128
    plain = ("tiles", "persistent") if problem["scales"] == "block" else ("persistent", "tiles")
    variants = ("specialized", *plain)
    for variant, block_k, warps, stages in product(variants, (128, 64), (4, 8, 2) if few else (8, 4), (6, 5, 4, 3, 2)):
        more: dict[str, Value] = {"BLOCK_K": block_k, "num_warps": warps, "num_stages": stages}
        full = {"VARIANT": variant, **config, "GROUP_M": group_m, "PROGRAMS": 1, **more}
        shared = stages * stage_bytes(problem, full)
        if (variant in DESCRIBED or 2 * shared <= limits.shared_bytes) and valid(problem, full, limits):
            yield full
