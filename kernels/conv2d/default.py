"""Default config of conv2d: the tile whose waves over the multiprocessors take least."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tuner.kernels.conv2d.layer import layer, product
from tuner.kernels.conv2d.patches import patches
from tuner.kernels.conv2d.space import SPLITS, on_tensor_cores, tile_count, valid
from tuner.kernels.shared.tiling import rows_walked, stage_bytes
from tuner.kernels.spec import Limits, Problem, Value, cdiv


@dataclass(frozen=True)
class DefaultSettings:
    """Settings of the rules."""

    tile_speeds: Mapping[tuple[int, int], float] = field(default_factory=lambda: {
        (128, 256): 1.0, (128, 128): 0.94, (256, 128): 0.95, (64, 256): 0.85, (256, 64): 0.8, (64, 128): 0.78,
        (128, 64): 0.7, (64, 64): 0.58, (128, 32): 0.45, (64, 32): 0.34, (32, 64): 0.3, (32, 32): 0.2, (16, 64): 0.2,
        (16, 32): 0.12, (64, 16): 0.12, (16, 16): 0.07, (128, 16): 0.14,
    })  # fmt: skip
    """Speed of the tensor cores with a tile (BLOCK_M, BLOCK_N), relative to the fastest; those of matrix products."""
    through_pointers: float = 0.8
    """Speed of tiles that threads read, relative to those of the copy engine."""
    joining: float = 0.7e7
    """Cost of each slice that is joined to a tile of 128 x 128, in elements of a tile times K."""
    beginning: float = 4.0e6
    """Cost of a program's first loads and its last stores, in the same unit, for a tile of 128 x 128."""
    stage_bytes: int = 49152
    """Most bytes of a step."""
    shared_bytes: int = 200 * 1024
    """Most bytes of all steps in flight."""


SETTINGS = DefaultSettings()


def default(problem: Problem, limits: Limits) -> Mapping[str, Value]:
    """Return the tile and the number of slices whose waves take least; with patches if the copy engine can."""
    for _, config in sorted(candidates(problem, limits), key=lambda found: found[0]):
        for found in filled(problem, config, limits):
            return found
    small: dict[str, Value] = {"VARIANT": "tiles", "BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 16, "PATCH": 0}
    return small | {"GROUP_M": 1, "SPLIT_K": 1, "num_warps": 2, "num_stages": 2}


def candidates(problem: Problem, limits: Limits) -> Iterator[tuple[float, dict[str, Value]]]:
    """Yield tiles, patches and numbers of slices with the cost of their waves."""
    found = layer(problem)
    for (block_m, block_n), speed in SETTINGS.tile_speeds.items():
        area = block_m * block_n
        tile: dict[str, Value] = {"BLOCK_M": block_m, "BLOCK_N": block_n}
        ways: list[dict[str, Value]] = [{"VARIANT": "tiles", "PATCH": 0}]
        if block_m >= 64 and block_n >= 64 and on_tensor_cores(problem) and patches(problem, block_m):
            ways.append({"VARIANT": "boxes", "PATCH": 0})
        for way in ways:
            if way["VARIANT"] == "boxes":  # the transpose is computed
                rate = SETTINGS.tile_speeds.get((block_n, block_m), speed)
            else:
                rate = speed * SETTINGS.through_pointers
            tiles = tile_count(problem, tile | way)
            for slices in SPLITS if tiles <= limits.sm_count else (1,):
                waves = cdiv(tiles * slices, limits.sm_count)
                each = area * found.depth / slices / rate + SETTINGS.beginning * area / 2**14
                joined = SETTINGS.joining * (slices - 1) * area / 2**14 if slices > 1 else 0.0
                yield waves * each + joined, tile | way | {"SPLIT_K": slices}


def filled(problem: Problem, config: Mapping[str, Any], limits: Limits) -> Iterator[Mapping[str, Value]]:
    """Yield feasible configs with a tile, best first: the deepest steps and the most stages that fit."""
    area = config["BLOCK_M"] * config["BLOCK_N"]
    most_warps = 8 if area > 128 * 128 or not on_tensor_cores(problem) else 4
    matrix = product(problem)
    for block_k in (64, 32, 16):
        for warps in (most_warps, 4, 2):
            for stages in (4, 3, 2):
                full = {
                    **config,
                    "BLOCK_K": block_k,
                    "GROUP_M": walked(problem, int(config["BLOCK_M"])),
                    "num_warps": warps,
                    "num_stages": stages,
                }
                step = stage_bytes(matrix, full)
                if step <= SETTINGS.stage_bytes and step * stages <= SETTINGS.shared_bytes:
                    if valid(problem, full, limits):
                        yield full


def walked(problem: Problem, block_m: int) -> int:
    """Return the default number of rows of tiles walked together, GROUP_M."""
    return max(1, rows_walked(product(problem), block_m) // 4 * 4)
