"""Default config of products whose tiles, as the rules cut them, leave multiprocessors without a program.

Such a product takes as long as its operands take to arrive. A program has `num_stages` - 1 steps of its operands in
flight, and device memory reaches its rate only if enough bytes are: those of programs on all multiprocessors, in deep
steps and many stages. So K is cut in as many slices as fill the card, up to a few programs for each multiprocessor.
Adding up their sums takes the longer the more slices and the larger the tile, which the estimate weighs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from operator import itemgetter

from tuner.kernels.gemm.alternatives import cost
from tuner.kernels.gemm.space import PLAIN, VARIANTS, on_tensor_cores, reads_elements, valid
from tuner.kernels.shared.tiling import rows_walked, stage_bytes, tile_count
from tuner.kernels.spec import Limits, Problem, Value, cdiv


@dataclass(frozen=True)
class FewTilesSettings:
    """Which slices are estimated, and when they replace the config of the rules."""

    least_k: int = 1024
    """K from which slices are estimated."""
    programs: int = 4
    """Most programs for each multiprocessor."""
    gain: float = 1.06
    """Least speedup over the config found so far for which slices of tiles are used; by estimates with margins."""
    few_rows: int = 16
    """Rows or columns up to which `few_rows_gain` replaces `gain`."""
    few_rows_gain: float = 1.3
    """Least speedup with few rows or columns. Slices of four products that were estimated 1.1 to 1.25 times as fast
    took 1.02 to 1.06 times as long, those of three that were estimated 1.4 to 1.75 times as fast 0.82 to 0.95 times
    (H200, 2026-11-30)."""
    vectors_gain: float = 2.0
    """Least speedup over `vectors`, whose estimate is up to 1.5 times too long."""
    sides: tuple[int, ...] = (16, 32, 64, 128)
    """Rows and columns of a tile."""
    depths: tuple[int, ...] = (64, 128, 256)
    """Steps along K."""
    exact_k: int = 4096
    """K from which products that threads compute are cut in slices to be exact."""
    exact_slice: int = 1024
    """Elements along K that a thread adds up one by one. The error of a running sum grows with its length."""


SETTINGS = FewTilesSettings()


def of_few_tiles(
    problem: Problem, found: Mapping[str, Value], limits: Limits, settings: FewTilesSettings = SETTINGS
) -> Mapping[str, Value]:
    """Return the slices of tiles with the least estimate if it is below that of the config found so far, else that.

    Threads add up exact fp32 products one after the other. The error of a sum of K elements in s slices is that of
    about K / sqrt(s) elements; so long ones are cut even if that is slower.
    """
    programs, by_threads = tile_count(problem, found) * int(str(found["SPLIT_K"])), found["VARIANT"] == "vectors"
    if problem["K"] < settings.least_k or programs >= limits.sm_count:
        return found
    cut = [(int(str(config["SPLIT_K"])), config) for config in _slices(problem, limits, settings)]
    if not cut:
        return found
    least = 2
    if not by_threads and not on_tensor_cores(problem) and problem["K"] >= settings.exact_k:
        least = min(max(slices for slices, _ in cut), problem["K"] // settings.exact_slice)
    costs = [(cost(problem, config, limits), config) for slices, config in cut if slices >= least]
    us, fastest = min(costs, key=itemgetter(0))
    has_few_rows = min(problem["M"], problem["N"]) <= settings.few_rows
    gain = settings.vectors_gain if by_threads else settings.few_rows_gain if has_few_rows else settings.gain
    return fastest if least > 2 or us * gain < cost(problem, found, limits) else found


_SLICES = tuple(int(str(slices)) for slices in VARIANTS["tiles"]["SPLIT_K"])


def _slices(problem: Problem, limits: Limits, settings: FewTilesSettings) -> Iterator[Mapping[str, Value]]:
    """Yield feasible slices of tiles that fill half of the card or more, each with the most stages that fit.

    Of tiles too few for that, the most slices are yielded.
    """
    for block_m, block_n in product(settings.sides, settings.sides):
        tiles = tile_count(problem, {"BLOCK_M": block_m, "BLOCK_N": block_n})
        enough = min(limits.sm_count, 2 * tiles * _SLICES[-1] - 1)
        for slices in _SLICES[1:]:
            if not enough < 2 * tiles * slices <= 2 * settings.programs * limits.sm_count:
                continue
            for block_k in settings.depths:
                tile: dict[str, Value] = {**PLAIN, "BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
                yield from fullest(problem, {**tile, "VARIANT": "tiles", "SPLIT_K": slices}, limits)


def fullest(problem: Problem, tile: Mapping[str, Value], limits: Limits) -> Iterator[Mapping[str, Value]]:
    """Yield the config of a tile with the most stages that all its programs have room for, if one is feasible."""
    block_m, block_n = int(str(tile["BLOCK_M"])), int(str(tile["BLOCK_N"]))
    config = {
        **tile,
        "GROUP_M": rows_walked(problem, block_m),
        "num_warps": 2 if block_m * block_n <= 16 * 32 else 4,
    }
    fits = (
        with_stages
        for stages in _stages(problem, config, limits)
        if valid(problem, with_stages := {**config, "num_stages": stages}, limits)
    )
    yield from (found for found in [next(fits, None)] if found)


def _stages(problem: Problem, config: Mapping[str, Value], limits: Limits) -> Iterator[int]:
    """Yield numbers of stages, the best first: those that all programs of a multiprocessor have room for at once."""
    programs = tile_count(problem, config) * int(str(config["SPLIT_K"]))
    steps = cdiv(problem["K"], int(str(config["BLOCK_K"])) * int(str(config["SPLIT_K"])))
    most = 2 if reads_elements(problem) else min(6, max(2, steps))
    room = limits.shared_bytes // cdiv(programs, limits.sm_count)
    yield from range(min(most, max(2, room // stage_bytes(problem, config))), 1, -1)
