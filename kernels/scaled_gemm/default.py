"""Default config of scaled_gemm: rules over sizes and the limits of the card, and the estimate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from tuner.errors import UsageError
from tuner.kernels.scaled_gemm.alternatives import alternative
from tuner.kernels.scaled_gemm.estimate import estimate
from tuner.kernels.scaled_gemm.few_tiles import of_few_tiles
from tuner.kernels.scaled_gemm.occupancy import most_stages
from tuner.kernels.scaled_gemm.space import (
    DEFAULTS,
    DESCRIBED,
    is_promoted,
    roles_can,
    scales_unaligned,
    sums_held,
    valid,
)
from tuner.kernels.shared.product_copies import Copying, of_copies
from tuner.kernels.shared.product_rows import may_align, padded
from tuner.kernels.shared.tiling import ALIGNED_BYTES, by_waves, rows_walked, stage_bytes, tile_count
from tuner.kernels.spec import Limits, Problem, Value, cdiv, next_power_of_2

Speeds = Mapping[tuple[int, int], float]


@dataclass(frozen=True)
class DefaultSettings:
    """Settings of the rules, from 4096^3 on an H200; the studies say how each was found.

    By how sums are kept: `fast` in the tensor cores, `fp32` in registers, `block` in registers and scaled there.
    """

    tile_speeds: Mapping[str, Speeds] = field(default_factory=lambda: {
        "fast": {
            (128, 256): 1.0, (128, 128): 0.98, (64, 256): 0.95, (256, 128): 0.93, (64, 128): 0.87, (128, 64): 0.76,
        },
        "fp32": {(256, 128): 1.0, (128, 128): 0.99, (64, 128): 0.91, (64, 256): 0.85, (128, 64): 0.82},
        "block": {(64, 128): 1.0, (128, 64): 0.93, (128, 128): 0.9},
    })  # fmt: skip
    """Speed with a tile (BLOCK_M, BLOCK_N), relative to the fastest tile, without roles for warps."""
    speeds_with_roles: Mapping[str, Speeds] = field(default_factory=lambda: {
        "fp32": {(128, 256): 1.0, (128, 128): 0.99},
        "block": {(128, 128): 1.0},
    })  # fmt: skip
    """The same, with roles for warps."""
    without_roles: Mapping[str, float] = field(default_factory=lambda: {"fp32": 0.78, "block": 0.68})
    """Speed of the fastest tile without roles for warps, relative to the fastest tile with them."""
    joining_with_roles: float = 1e7
    """As `WaveCosts.joining`, with roles: each thread stores and reads its sums in the order in which it holds them."""
    fewest_rows: int = 64
    """Rows and columns from which a problem is computed in tiles by waves."""
    bytes_in_flight: int = 18 * 1024
    """Bytes that a multiprocessor has in flight if device memory reaches its rate: 4 TB/s for 0.6 us, over 132."""
    deep_stages: int = 4
    """Fewest stages of steps of 256 elements along K."""
    deep_slack: float = 1.1
    """Most elements along K of all of these steps, relative to K."""
    slice_k: int = 256
    """Fewest elements along K of a slice of few rows: 4 x 2048 x 256 takes 3.0 us whole and 3.9 in two slices (H200,
    2026-11-30)."""
    least_k: int = 1024
    """K from which vectors go without tensor cores."""
    least_odd_k: int = 512
    """The same if rows are loaded byte by byte."""
    most_depth: int = 8192
    """Most elements along K of a step of `vectors`."""
    most_warps: int = 8
    """Most warps of a program of `vectors`."""


SETTINGS = DefaultSettings()
COPYING = Copying(estimate, valid, DEFAULTS, steps=((128, 4), (128, 3), (64, 4)))


def default(problem: Problem, limits: Limits) -> Mapping[str, Value]:
    """Return the config of the rules, or one of warps with roles that the estimate finds faster.

    Operands that are not aligned may be copied first.

    Raises:
        UsageError: the card multiplies no 8-bit floats.
    """
    if limits.capability < (8, 9):
        raise UsageError(
            "scaled_gemm multiplies 8-bit floats on cards of compute capability 8.9 and up, and this one has "
            f"{'.'.join(map(str, limits.capability))}; call gemm on 16-bit floats instead"
        )
    as_it_lies = of_few_tiles(problem, alternative(problem, by_rules(problem, limits), limits), limits)
    if not may_align(problem) and not scales_unaligned(problem):
        return as_it_lies
    return of_copies(COPYING, problem, as_it_lies, lambda: default(aligned(problem), limits), limits)


def aligned(problem: Problem) -> Problem:
    """Return the problem with all rows that are not aligned to 16 bytes lengthened, and columns of scales of a."""
    longer = padded(problem)
    if not scales_unaligned(problem):
        return longer
    dims = tuple((name, cdiv(size, 4) * 4 if name == "M" else size) for name, size in longer.dims)
    return replace(longer, dims=dims, text=f"{longer.text} and aligned scales")


def by_rules(problem: Problem, limits: Limits) -> Mapping[str, Value]:
    """Return the tile whose waves over the multiprocessors take least, whole or in two slices.

    With few rows, reading b takes the time: tiles are narrow, in as many slices along K as give each multiprocessor
    one.
    """
    M, N, _ = problem.sizes
    if min(M, N) < SETTINGS.fewest_rows:
        vectors = by_vectors(problem, limits)
        return vectors if vectors and valid(problem, vectors, limits) else few_rows(problem, limits)
    sums = "block" if problem["scales"] == "block" else problem["accumulate"]
    with_roles = SETTINGS.speeds_with_roles.get(sums, {}) if roles_can(problem, DEFAULTS, limits) else {}
    others = SETTINGS.without_roles[sums] if with_roles else 1.0
    speeds = {tile: others * speed for tile, speed in SETTINGS.tile_speeds[sums].items()} | dict(with_roles)
    joining = dict.fromkeys(with_roles, SETTINGS.joining_with_roles)
    for block_m, block_n, slices, _ in by_waves(problem, speeds, limits, joining=joining):
        config: dict[str, Value] = {"BLOCK_M": block_m, "BLOCK_N": block_n, "SPLIT_K": slices}
        for found in filled(problem, config, limits):
            return found
    return few_rows(problem, limits)


def by_vectors(problem: Problem, limits: Limits) -> Mapping[str, Value] | None:
    """Return the default of a matrix times one vector or two; None if it is small, or blocks have scales.

    Rows of no multiple of 16 elements are loaded byte by byte: programs of several rows load the vectors less often.
    Steps of other rows are deepened while programs have too few bytes in flight.
    """
    K, vectors, most = problem["K"], next_power_of_2(min(problem["M"], problem["N"])), max(problem["M"], problem["N"])
    rows, depth, warps = (2, 1024, 2) if vectors == 2 else (2, 4096, 2) if K % 4096 == 0 else (1, 2048, 2)
    if vectors == 1 and K <= 2048:  # all of K in one step
        rows, depth, warps = 2, next_power_of_2(K), 4
    is_short = (SETTINGS.least_odd_k if K % ALIGNED_BYTES else SETTINGS.least_k) > K
    if vectors > 2 or is_short or problem["scales"] == "block":
        return None
    if K % ALIGNED_BYTES:
        rows, depth, warps = 8 // vectors, 512, 4
        while rows > 2 and cdiv(most, rows) < limits.sm_count:
            rows, warps = rows // 2, 2
    else:
        in_flight = SETTINGS.bytes_in_flight * limits.sm_count
        while (
            depth < SETTINGS.most_depth
            and warps < SETTINGS.most_warps
            and most * depth < in_flight
            and cdiv(K, 2 * depth) * 2 == cdiv(K, depth)
        ):
            depth, warps = 2 * depth, 2 * warps
    few, wide = ("BLOCK_M", "BLOCK_N") if problem["M"] <= problem["N"] else ("BLOCK_N", "BLOCK_M")
    return {
        few: vectors,
        wide: rows,
        "BLOCK_K": depth,
        "GROUP_M": 1,
        "VARIANT": "vectors",
        "SPLIT_K": 1,
        **DEFAULTS,
        "num_warps": warps,
        "num_stages": 1,
    }


def few_rows(problem: Problem, limits: Limits) -> Mapping[str, Value]:
    """Return the default of a problem whose tiles have fewer than 64 rows or columns.

    Programs share a multiprocessor, so the variant is not persistent.
    """
    M, N, _ = problem.sizes
    config: dict[str, Value] = {
        "BLOCK_M": min(64, max(16, next_power_of_2(M))),
        "BLOCK_N": min(64, max(16, next_power_of_2(N))),
        "VARIANT": "tiles",
    }
    programs = round(2 * limits.sm_count / tile_count(problem, config))
    most = max(1, min(programs, problem["K"] // SETTINGS.slice_k))
    return next(
        found
        for split_k in (16, 8, 4, 2, 1)
        if split_k <= most
        for found in filled(problem, {**config, "SPLIT_K": split_k}, limits)
    )


def filled(problem: Problem, config: Mapping[str, Any], limits: Limits) -> Iterator[Mapping[str, Value]]:
    """Yield feasible configs with a tile, best first: the variant, the warps for its sums, the most stages that fit.

    With scales of blocks, sums wait for their scales too: programs that share a multiprocessor fill each other's gaps.
    """
    group_m = rows_walked(problem, int(config["BLOCK_M"]))
    few = sums_held(problem, {"VARIANT": "tiles", **config, "num_warps": 4}, limits) <= 128 * 128
    plain = ("tiles", "persistent") if problem["scales"] == "block" else ("persistent", "tiles")
    variants: tuple[str, ...] = ("specialized", *plain) if is_promoted(problem) else plain
    if "VARIANT" in config:
        variants = (config["VARIANT"],)
    most = (14, 6, 5, 4, 3, 2)
    for variant, block_k, warps, stages in product(variants, (256, 128, 64), (4, 8, 2) if few else (8, 4), most):
        if block_k == 256 and not (may_be_deep(problem, variant) and stages >= SETTINGS.deep_stages):
            continue
        more: dict[str, Value] = {"BLOCK_K": block_k, "num_warps": warps, "num_stages": stages}
        full = {**config, "VARIANT": variant, "GROUP_M": 1 if variant == "specialized" else group_m, **DEFAULTS, **more}
        if variant == "tiles" and stages > most_stages(problem, full, limits):
            continue  # the last programs would wait for others to end
        shared = stages * stage_bytes(problem, full)
        if (variant in DESCRIBED or 2 * shared <= limits.shared_bytes) and valid(problem, full, limits):
            yield full


def may_be_deep(problem: Problem, variant: str) -> bool:
    """Return whether steps of 256 elements are considered: of programs that have a multiprocessor each.

    No other program runs while one begins a step. Sums must stay in the tensor cores for all of it.
    """
    walked = cdiv(problem["K"], 256) * 256
    return variant == "persistent" and not is_promoted(problem) and walked <= SETTINGS.deep_slack * problem["K"]
