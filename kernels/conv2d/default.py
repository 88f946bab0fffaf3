"""Default config of conv2d: the tile whose waves over the multiprocessors take least, or the fastest by estimate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product as product_of
from typing import Any

from tuner.kernels.conv2d.alternatives import alternative
from tuner.kernels.conv2d.copies import convolved, copied_bytes, may_copy
from tuner.kernels.conv2d.layer import (
    direct_bytes,
    direct_steps,
    filters_at_once,
    has_runs,
    layer,
    product,
    run_of,
    steps,
)
from tuner.kernels.conv2d.patches import patches
from tuner.kernels.conv2d.space import SPLITS, can_describe, on_tensor_cores, tile_count, valid
from tuner.kernels.shared.roles_space import WITHOUT_TURNS
from tuner.kernels.shared.tiling import ALIGNED_BYTES, rows_walked, stage_bytes
from tuner.kernels.shared.windows import power_of_2_in
from tuner.kernels.spec import Limits, Problem, Value, cdiv, itemsize


@dataclass(frozen=True)
class DefaultSettings:
    """Settings of the rules."""

    tile_speeds: Mapping[tuple[int, int], float] = field(default_factory=lambda: {
        (128, 320): 1.0, (128, 256): 1.0, (128, 192): 0.97, (128, 160): 0.95,
        (128, 128): 0.94, (256, 128): 0.95, (64, 256): 0.85, (256, 64): 0.8,
        (64, 128): 0.78, (128, 64): 0.7, (64, 64): 0.58, (128, 32): 0.45, (64, 32): 0.34, (32, 64): 0.3, (32, 32): 0.2,
        (16, 64): 0.2, (128, 16): 0.14, (16, 32): 0.12, (64, 16): 0.12, (16, 16): 0.07,
    })  # fmt: skip
    """Speed of the tensor cores with a tile (BLOCK_M, BLOCK_N), relative to the fastest; those of matrix products."""
    through_pointers: float = 0.83
    """Speed of tiles that threads read, relative to those of the copy engine."""
    on_threads: float = 0.07
    """Speed of products that threads compute, relative to tensor cores."""
    waiting: float = 4.6e6
    """Time from the issue of a step's loads to their arrival, in elements of a tile times K."""
    joining: float = 1.9e7
    """Cost of each slice that is joined to a tile of 128 x 128, in the same unit."""
    joining_by_roles: float = 1.4e7
    """The same if warps have roles: each group joins its own half."""
    beginning: float = 1.3e7
    """Cost of a tile's first loads and its last stores, in the same unit, for a tile of 128 x 128."""
    gathering: float = 250.0
    """Cost of a load that is narrower than 16 bytes, in the same unit: a thread computes its address and mask."""
    storing: float = 85.0
    """Cost of a byte that `direct` stores, in the same unit: the rate of an H200's memory, 4.7 TB/s."""
    scattering: float = 7.0e4
    """Cost of a row of a tile that is stored in pieces of less than 16 bytes, in the same unit, whatever its width."""
    copying: float = 1.0
    """Cost of a byte that a copy reads or writes, in the same unit, if all multiprocessors copy."""
    launching: float = 6.0e6
    """Cost of a launch that copies, in the same unit."""
    tail: float = 0.4
    """Share of a last round's idle time that remains, since programs of `direct` do not end at the same time."""
    most_in_flight: int = 4
    """Most steps of a program whose waits are counted as shared."""
    shown: float = 0.88
    """Share of `beginning` that remains if other programs, or warps with other roles, work meanwhile."""
    registers: int = 56
    """Registers of a thread beside its sums."""
    waste: float = 1.15
    """Most elements along K that are read by steps of a depth, relative to the depth that reads fewest."""
    stage_bytes: int = 57344
    """Most bytes of a step."""
    shared_bytes: int = 224 * 1024
    """Most bytes of all steps in flight."""


SETTINGS = DefaultSettings()
DEPTHS = (64, 32, 16)
"""Depths of a step."""
IN_TURN = (1, 4, 8, 16)
"""Choices of the tiles that a program of `direct` computes, one after the other."""
STAGES: Mapping[str, tuple[int, ...]] = {
    "tiles": (4, 3, 2),
    "boxes": (5, 4, 3),
    "specialized": (6, 5, 4, 3),
    "direct": (2,),
}
"""Stages that the default considers, by variant."""


def default(problem: Problem, limits: Limits) -> Mapping[str, Value]:
    """Return the config of the rules, or, of a product of matrices, one that the estimate finds faster."""
    return alternative(problem, by_cost(problem, limits), limits)


def by_cost(problem: Problem, limits: Limits) -> Mapping[str, Value]:
    """Return the feasible config of least cost, but matrix products; those that waste reads come last."""
    for *_, config in sorted(candidates(problem, limits), key=lambda found: found[:2]):
        if valid(problem, config, limits):
            return in_rounds(problem, config, limits) if config["VARIANT"] == "direct" else config
    small: dict[str, Value] = {"VARIANT": "tiles", "BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 16, "PATCH": 0}
    return small | {**WITHOUT_TURNS, "COPY": False, "GROUP_M": 1, "SPLIT_K": 1, "num_warps": 2, "num_stages": 2}


def in_rounds(problem: Problem, config: Mapping[str, Value], limits: Limits) -> Mapping[str, Value]:
    """Return a config of `direct` with the number of tiles of a program whose rounds cost least."""
    found = way(problem, config, limits)
    each = ({**config, "GROUP_M": count} for count in IN_TURN)
    can_run = [config, *(tried for tried in each if valid(problem, tried, limits))]
    return min(can_run, key=lambda tried: rounds_cost(problem, tried, limits, found))


def candidates(problem: Problem, limits: Limits) -> Iterator[tuple[bool, float, dict[str, Value]]]:
    """Yield configs of each variant: whether their steps waste reads, and the cost of their waves."""
    for copies in (False, True) if may_copy(problem) and on_tensor_cores(problem) else (False,):
        yield from of_tiles(problem, limits, {**WITHOUT_TURNS, "COPY": copies})


def of_tiles(
    problem: Problem, limits: Limits, given: Mapping[str, Value]
) -> Iterator[tuple[bool, float, dict[str, Value]]]:
    """Yield what `candidates` does, with or without COPY."""
    variants = [variant for variant in STAGES if variant != "direct" or (may_copy(problem) and not given["COPY"])]
    ways = {variant: way(problem, {**given, "VARIANT": variant}, limits) for variant in variants}
    for (block_m, block_n), variant in product_of(SETTINGS.tile_speeds, variants):
        found = ways[variant]
        by_engine = block_m >= 64 and block_n >= 64 and found.is_described and patches(problem, block_m)
        if variant != "tiles" and not (block_m in (64, 128) if variant == "direct" else by_engine):
            continue
        tile: dict[str, Value] = {**given, "VARIANT": variant, "BLOCK_M": block_m, "BLOCK_N": block_n, "PATCH": 0}
        count = tile_count(problem, tile)
        tile["GROUP_M"] = in_turn(problem, tile, limits) if variant == "direct" else walked(problem, block_m)
        splits = SPLITS if count <= limits.sm_count and variant != "direct" else (1,)
        of_four = variant in ("specialized", "direct")
        most = 4 if of_four else most_warps(problem, tile, limits)
        warps = (4,) if of_four else tuple({most: 0, 4: 0, 2: 0})
        for num_warps, block_k, stages in product_of(warps, DEPTHS, STAGES[variant]):
            config = tile | {"BLOCK_K": block_k, "num_warps": num_warps, "num_stages": stages}
            if variant != "direct" and not stages_fit(problem, config):
                continue
            wasteful = block_k * found.steps[block_k] > SETTINGS.waste * found.least or num_warps < most
            for slices in splits:
                if slices > 1 and slices * 2 > found.steps[block_k]:
                    break  # `worth_slicing` refuses these and all after them
                sliced = config | {"SPLIT_K": slices}
                yield wasteful, cost(problem, sliced, limits, found, count * slices), sliced


def stages_fit(problem: Problem, config: Mapping[str, Any]) -> bool:
    """Return whether a step, and all steps in flight, take no more shared memory than defaults have for them."""
    step = stage_bytes(product(problem), config)
    return step <= SETTINGS.stage_bytes and step * config["num_stages"] <= SETTINGS.shared_bytes


@dataclass(frozen=True)
class Way:
    """Costs that configs of a variant share, with or without COPY. Made by `way`."""

    steps: Mapping[int, int]
    """Number of steps along K by their depth."""
    loads: Mapping[int, float]
    """Number of loads for each element of a step by its depth; 0 if they are of 16 bytes or the copy engine's."""
    least: int
    """Fewest elements along K that are read."""
    is_described: bool
    """True if the copy engine can read the operands, or their copies."""
    copying: float
    """Cost of the copies."""
    clipped: int
    """Number of filters if the copy engine reads a copy: it neither reads nor writes past the last. 0 for others."""
    is_scattered: bool
    """True if channels are unaligned and threads store tiles in pieces of less than 16 bytes."""


def way(problem: Problem, given: Mapping[str, Value], limits: Limits) -> Way:
    """Return the costs that configs of a VARIANT and COPY share."""
    configs = {depth: {**given, "BLOCK_K": depth} for depth in DEPTHS}
    by_threads = given["VARIANT"] in ("tiles", "direct")
    is_narrow = filters_at_once(problem) * itemsize(problem.dtype) < ALIGNED_BYTES
    # The costs of aligned channels were fitted without clipped tiles and scattered stores.
    is_scattered = by_threads and is_narrow and may_copy(problem)
    if given["VARIANT"] == "direct":
        counts = {depth: direct_steps(problem, depth) for depth in DEPTHS}
        loads = dict.fromkeys(DEPTHS, 1 / min(2, run_of(problem).unit))
        least = min(depth * count for depth, count in counts.items())
        return Way(counts, loads, least, False, 0.0, 0, is_scattered)
    read = {depth: convolved(problem, config) for depth, config in configs.items()}
    counts = {depth: steps(copy, depth) for depth, copy in read.items()}
    loads = {depth: loads_of(copy, depth) if given["VARIANT"] == "tiles" else 0.0 for depth, copy in read.items()}
    least = min(depth * count for depth, count in counts.items())
    is_described = on_tensor_cores(problem) and can_describe(read[DEPTHS[0]], limits)
    copied = copied_bytes(problem, configs[DEPTHS[0]]) if given["COPY"] else 0
    copying = SETTINGS.copying * copied + SETTINGS.launching if copied else 0.0
    clipped = layer(problem).filters if given["COPY"] and not by_threads else 0
    return Way(counts, loads, least, is_described, copying, clipped, is_scattered)


def loads_of(problem: Problem, block_k: int) -> float:
    """Return the number of loads of `tiles` for each element of a step; 0 if they are of 16 bytes."""
    widest = ALIGNED_BYTES // itemsize(problem.dtype)
    unit = run_of(problem).unit if has_runs(problem, block_k) else power_of_2_in(widest, layer(problem).channels)
    return 1 / unit if unit < widest else 0.0


def cost(problem: Problem, config: Mapping[str, Any], limits: Limits, found: Way, programs: int) -> float:
    """Return the cost of a number of programs, in elements of a tile times K.

    A step takes the longer of its products and its share of the wait for loads, which all steps in flight share.
    """
    if config["VARIANT"] == "direct":
        return direct_cost(problem, config, limits, found, programs)
    area, has_roles = config["BLOCK_M"] * config["BLOCK_N"], config["VARIANT"] == "specialized"
    waves = max(1, cdiv(programs, limits.sm_count))  # there may be no output
    together = min(waves, resident(problem, config, limits))
    in_flight = min(config["num_stages"] - (0 if has_roles else 1), SETTINGS.most_in_flight)
    loads = (config["BLOCK_M"] + config["BLOCK_N"]) * found.loads[config["BLOCK_K"]]
    busy = (area / speed(problem, config) + SETTINGS.gathering * loads) * config["BLOCK_K"]
    step = max(busy, SETTINGS.waiting / (in_flight * together))
    begun = 1 if has_roles else cdiv(waves, together)
    beginnings = SETTINGS.beginning * (begun + SETTINGS.shown * (waves - begun))
    if found.clipped:
        beginnings *= found.clipped / (cdiv(found.clipped, config["BLOCK_N"]) * config["BLOCK_N"])
    joined = (SETTINGS.joining_by_roles if has_roles else SETTINGS.joining) * (config["SPLIT_K"] - 1)
    count = found.steps[config["BLOCK_K"]] / config["SPLIT_K"]
    scattered = SETTINGS.scattering * config["BLOCK_M"] / config["SPLIT_K"] if found.is_scattered else 0.0
    return float(waves * (count * step + scattered) + (beginnings + joined) * area / 2**14 + found.copying)


def direct_cost(problem: Problem, config: Mapping[str, Any], limits: Limits, found: Way, tiles: int) -> float:
    """Return the cost of a number of tiles of `direct`, in the same unit, if programs leave no multiprocessor idle."""
    busy, alone = direct_times(problem, config, found)
    programs = cdiv(cdiv(tiles, config["GROUP_M"]), limits.sm_count)
    together = max(1, min(programs, resident(problem, config, limits)))
    return float(cdiv(tiles, limits.sm_count) * max(busy, alone / together))


def direct_times(problem: Problem, config: Mapping[str, Any], found: Way) -> tuple[float, float]:
    """Return the cost of a tile of `direct` if others hide its waiting, and that of one alone.

    A program waits for the loads of a tile, multiplies, and stores; other programs of its multiprocessor do so
    meanwhile. All share the rates at which it issues loads and stores, and at which it multiplies.
    """
    block_m, block_n, in_turn = config["BLOCK_M"], config["BLOCK_N"], config["GROUP_M"]
    depth = config["BLOCK_K"] * found.steps[config["BLOCK_K"]]
    # A program loads filters, and waits for them, once for all of its tiles.
    issued = SETTINGS.gathering * (block_m * found.loads[config["BLOCK_K"]] + block_n / in_turn) * depth
    stored = SETTINGS.storing * block_m * block_n * itemsize(problem.dtype)
    if found.is_scattered:
        stored = SETTINGS.scattering * block_m
    products = block_m * block_n * depth / speed(problem, config)
    return max(issued + stored, products), SETTINGS.waiting * (1 + 1 / in_turn) + issued + products + stored


def rounds_cost(problem: Problem, config: Mapping[str, Any], limits: Limits, found: Way) -> float:
    """Return the cost of all tiles of `direct` with the rounds in which a multiprocessor computes its programs."""
    busy, alone = direct_times(problem, config, found)
    in_turn, held = config["GROUP_M"], resident(problem, config, limits)
    programs = max(1, cdiv(cdiv(tile_count(problem, config), in_turn), limits.sm_count))
    full, rest = divmod(programs, held)
    rounds = full * max(held * busy, alone) + (max(rest * busy, alone) if rest else 0.0)
    evenly = programs * max(busy, alone / min(programs, held))
    return float(in_turn * (evenly + SETTINGS.tail * (rounds - evenly)))


def speed(problem: Problem, config: Mapping[str, Any]) -> float:
    """Return the speed of products in a tile, relative to the fastest."""
    sides = config["BLOCK_M"], config["BLOCK_N"]
    if config["VARIANT"] == "boxes":  # they compute the transpose, without a second group that stores meanwhile
        return min(SETTINGS.tile_speeds.get(sides[::-1], 1.0), SETTINGS.tile_speeds[sides])
    factor = SETTINGS.through_pointers if config["VARIANT"] == "tiles" else 1.0
    return SETTINGS.tile_speeds[sides] * factor * (1.0 if on_tensor_cores(problem) else SETTINGS.on_threads)


def resident(problem: Problem, config: Mapping[str, Any], limits: Limits) -> int:
    """Return the number of programs that a multiprocessor has shared memory and registers for."""
    if config["VARIANT"] == "specialized":
        return 1
    threads = config["num_warps"] * limits.warp_size
    registers = config["BLOCK_M"] * config["BLOCK_N"] + SETTINGS.registers * threads
    reserved = 1024  # bytes of shared memory that the driver takes from each program
    if config["VARIANT"] == "direct":  # windows are in registers, filters and the stored tile in shared memory
        depth, shared = direct_bytes(problem, config)
        registers += config["BLOCK_M"] * depth * itemsize(problem.dtype) // 4
    else:
        shared = config["num_stages"] * stage_bytes(product(problem), config)
    by_shared = (limits.shared_bytes + reserved) // (shared + reserved)
    return max(1, min(by_shared, limits.registers_per_sm // registers))


def most_warps(problem: Problem, config: Mapping[str, Any], limits: Limits) -> int:
    """Return the number of warps that have registers for a tile.

    Tensor cores before Hopper read factors from registers, and channels that are not aligned are read one by one. The
    threads of `tiles` also hold addresses of their rows: with 256 x 64, those of 4 warps need 223 registers and more,
    and may spill (H200, 2026-12-01: 24 x 111 x 43 x 43, 139 filters of 3 x 3, 96.2 us, by 8 warps 87.2 us).
    """
    area, is_tiles = config["BLOCK_M"] * config["BLOCK_N"], config["VARIANT"] == "tiles"
    by_element = is_tiles and layer(convolved(problem, config)).channels * itemsize(problem.dtype) % 4 > 0
    has_more = limits.capability[0] != 9 or config["BLOCK_M"] > 128
    in_registers = is_tiles and has_more and area >= 128 * 128
    return 8 if area > 128 * 128 or in_registers or by_element or not on_tensor_cores(problem) else 4


def walked(problem: Problem, block_m: int) -> int:
    """Return the default number of rows of tiles walked together, GROUP_M."""
    return max(1, rows_walked(product(problem), block_m) // 4 * 4)


def in_turn(problem: Problem, config: Mapping[str, Any], limits: Limits) -> int:
    """Return a number of tiles that a program of `direct` computes, which leaves two for a multiprocessor."""
    count = tile_count(problem, config)
    return max(each for each in IN_TURN if each == 1 or count >= 2 * limits.sm_count * each)
