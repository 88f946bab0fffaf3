"""Default config of conv2d: the tile whose waves over the multiprocessors take least."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tuner.kernels.conv2d.layer import layer, product, steps
from tuner.kernels.conv2d.patches import patches
from tuner.kernels.conv2d.space import SPLITS, on_tensor_cores, tile_count, valid
from tuner.kernels.shared.tiling import rows_walked, stage_bytes
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
    through_pointers: float = 0.8
    """Speed of tiles that threads read, relative to those of the copy engine."""
    with_roles: float = 1.0
    """Speed of warps with roles, relative to boxes."""
    shallow: float = 0.85
    """Speed of boxes of 32 channels, relative to those of 64."""
    joining: float = 0.7e7
    """Cost of each slice that is joined to a tile of 128 x 128, in elements of a tile times K."""
    beginning: float = 4.0e6
    """Cost of a tile's first loads and its last stores, in the same unit, for a tile of 128 x 128.

    Warps with roles load the next tile meanwhile, which hides half of it.
    """
    waste: float = 1.15
    """Most elements along K that are read by steps of a depth, relative to the depth that reads fewest."""
    stage_bytes: int = 57344
    """Most bytes of a step."""
    shared_bytes: int = 224 * 1024
    """Most bytes of all steps in flight."""


SETTINGS = DefaultSettings()
DEPTHS = (64, 32, 16)
"""Depths of a step."""


def default(problem: Problem, limits: Limits) -> Mapping[str, Value]:
    """Return the tile and the number of slices whose waves take least; with patches if the copy engine can."""
    for _, config in sorted(candidates(problem, limits), key=lambda found: found[0]):
        for found in filled(problem, config, limits):
            return found
    small: dict[str, Value] = {"VARIANT": "tiles", "BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 16, "PATCH": 0}
    return small | {"GROUP_M": 1, "SPLIT_K": 1, "num_warps": 2, "num_stages": 2}


def candidates(problem: Problem, limits: Limits) -> Iterator[tuple[float, dict[str, Value]]]:
    """Yield tiles of each variant and numbers of slices, with the cost of their waves."""
    found = layer(problem)
    for (block_m, block_n), speed in SETTINGS.tile_speeds.items():
        area = block_m * block_n
        rates = {"tiles": speed * SETTINGS.through_pointers}
        if block_m >= 64 and block_n >= 64 and on_tensor_cores(problem) and patches(problem, block_m):
            # Boxes compute the transpose.
            whole = found.taps == 1 or found.channels % 64 == 0
            rates["boxes"] = SETTINGS.tile_speeds.get((block_n, block_m), speed) * (1.0 if whole else SETTINGS.shallow)
            rates["specialized"] = speed * SETTINGS.with_roles
        for variant, rate in rates.items():
            tile: dict[str, Value] = {"VARIANT": variant, "PATCH": 0, "BLOCK_M": block_m, "BLOCK_N": block_n}
            tiles, hidden = tile_count(problem, tile), 2 if variant == "specialized" else 1
            for slices in SPLITS if tiles <= limits.sm_count else (1,):
                waves = cdiv(tiles * slices, limits.sm_count)
                each = area * found.depth / slices / rate + SETTINGS.beginning * area / 2**14 / hidden
                joined = SETTINGS.joining * (slices - 1) * area / 2**14
                yield waves * each + joined, tile | {"SPLIT_K": slices}


def filled(problem: Problem, config: Mapping[str, Any], limits: Limits) -> Iterator[Mapping[str, Value]]:
    """Yield feasible configs with a tile, best first: the deepest steps that waste little, and the most stages."""
    has_roles = config["VARIANT"] == "specialized"
    least = min(depth * steps(problem, depth) for depth in DEPTHS)
    for block_k in sorted(DEPTHS, key=lambda depth: (depth * steps(problem, depth) > SETTINGS.waste * least, -depth)):
        for warps in (4,) if has_roles else (most_warps(problem, config, limits), 4, 2):
            for stages in (6, 5, 4, 3) if has_roles else (4, 3, 2):
                full = {
                    **config,
                    "BLOCK_K": block_k,
                    "GROUP_M": walked(problem, int(config["BLOCK_M"])),
                    "num_warps": warps,
                    "num_stages": stages,
                }
                step = stage_bytes(product(problem), full)
                small = step <= SETTINGS.stage_bytes and step * stages <= SETTINGS.shared_bytes
                if small and valid(problem, full, limits):
                    yield full


def most_warps(problem: Problem, config: Mapping[str, Any], limits: Limits) -> int:
    """Return the number of warps that have registers for a tile.

    Tensor cores before Hopper read factors from registers, and channels that are not aligned are read one by one.
    """
    area, is_tiles = config["BLOCK_M"] * config["BLOCK_N"], config["VARIANT"] == "tiles"
    by_element = is_tiles and layer(problem).channels * itemsize(problem.dtype) % 4 > 0
    in_registers = is_tiles and limits.capability[0] != 9 and area >= 128 * 128
    return 8 if area > 128 * 128 or in_registers or by_element or not on_tensor_cores(problem) else 4


def walked(problem: Problem, block_m: int) -> int:
    """Return the default number of rows of tiles walked together, GROUP_M."""
    return max(1, rows_walked(product(problem), block_m) // 4 * 4)
