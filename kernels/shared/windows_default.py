"""Default config of pooling: the one with the least estimate, or a rule over windows and the card.

Estimates exist of tiles, and of shared windows of nhwc whose elements are loaded one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import inf, log2
from typing import Any

from tuner.kernels.shared import windows_space as space
from tuner.kernels.shared.windows import Windows, power_of_2_in, windows
from tuner.kernels.shared.windows_estimate import estimate
from tuner.kernels.shared.windows_launch import (
    UNROLLED_BLOCKS,
    UNROLLED_ROWS,
    UNROLLED_VALUES,
    tiles,
    unrolled,
    vectors,
)
from tuner.kernels.shared.windows_shared import reads_one_by_one, shared_estimate
from tuner.kernels.shared.windows_space import has_reduced, has_tiles, least_channels, steps, valid
from tuner.kernels.spec import Limits, Problem, Value, cdiv, next_power_of_2


@dataclass(frozen=True)
class DefaultSettings:
    """Settings of the default.

    Tiles that are tried are of the kinds that were fastest in searches, since the estimate is fitted to those. The rule
    for windows that threads share keeps 24 to 40 KB of reads in flight on each multiprocessor of an H200.
    """

    sides: tuple[int, ...] = (1, 2, 4, 8)
    """Rows or columns of outputs of a thread that are tried."""
    outputs: int = 32
    """Most outputs of a thread, of each of its channels."""
    warps: tuple[int, ...] = (1, 2)
    """Warps of a program of nchw that are tried."""
    repeats: tuple[int, ...] = (1, 2)
    """Tiles of a thread of nchw that are tried."""
    groups: tuple[int, ...] = (128, 64, 32, 16, 8)
    """Threads along a row of outputs that are tried."""
    pixel_warps: tuple[int, ...] = (1, 2, 4)
    """Warps of a program of nhwc that are tried."""
    shares: tuple[int, ...] = (1, 4)
    """Divisors of the outputs of a full nhwc program that are tried; threads of a smaller one load fewer channels."""
    further: int = 2
    """Most channels of a thread of nhwc, relative to those of a load; the others are at a known offset."""
    gain: float = 0.03
    """Share by which each doubling of warps raises the estimate: a program's place is free only when its slowest warp
    is done, which the estimate does not count."""
    outputs_gain: float = 0.02
    """The same for each doubling of a thread's nchw outputs; the estimates of those with more are 3 to 5 % too low."""
    short_warps: tuple[int, ...] = (2, 1)
    """Warps of a program that shares short windows of nchw, of a smaller one if there are few programs."""
    long_warps: tuple[int, ...] = (4, 2, 1)
    """The same of long windows of nchw."""
    programs_per_sm: int = 4
    """Fewest programs for each multiprocessor that share short windows; smaller problems have smaller tiles."""
    shared_per_sm: int = 8
    """The same of programs that share long windows."""
    values: int = 16
    """Number of elements of long windows that a thread reads at once."""
    short_values: int = 32
    """The same of short windows."""
    full: tuple[float, float] = (0.75, 0.5)
    """Shares of the programs of `shared_per_sm` that are enough in nchw and nhwc, since windows are split into powers
    of two."""
    short: int = 256
    """Most elements of a contiguous window that is not looped over."""
    short_pixels: int = 128
    """The same if channels are contiguous."""
    lanes: int = 8
    """Threads along a short window."""
    block: int = 2048
    """Most neighbouring elements of a long window that a program reads at once."""
    pixels: int = 8
    """Pixels of a long window that a thread reads at once, if channels are contiguous."""
    part: int = 2048
    """Fewest elements of a part of a window of nchw, if programs share it."""
    part_pixels: int = 64
    """The same of nhwc. A small problem takes as long as a program waits for its blocks, one after the other."""
    in_flight: int = 24 * 1024
    """Bytes on each multiprocessor that are enough to be read at once, in nhwc. Programs have more warps if they read
    fewer, though the threads of several warps exchange values in the end."""
    stages: int = 3
    """Blocks of a long window in flight."""
    most_warps: int = 8
    """Warps of a program that reads a window of nhwc at once, if there are too few programs to fill the card."""
    shared_warps: tuple[int, ...] = (1, 2, 4, 8)
    """Warps of a program that are tried if threads share windows and load elements one by one."""
    elements: int = 64
    """Most elements that such a thread loads at once."""
    shared_gain: float = 1.15
    """Least estimated speedup over the rule's config for which such a config is used. Of six problems, two were 1.02
    and 1.08 times as slow, with 1.09 estimated, and four 1.1 to 2.3 times as fast, with 1.24 to 1.6 (H200, 2026-12-01).
    """


SETTINGS = DefaultSettings()


def default(problem: Problem, limits: Limits, *, maximum: bool) -> Mapping[str, Value]:
    """Return the feasible config with the least estimate, or the first of the rule's if threads share windows.

    Args:
        maximum: whether windows are compared, not summed.
    """
    found = windows(problem)
    if not (is_shared(found) or _leaves_most_idle(found, limits)):
        return _tiled(problem, found, limits, maximum)
    configs = list(_reduced(found, limits))
    rules = next((config for config in configs if valid(problem, config, limits)), configs[-1])
    return _least_shared(problem, found, rules, limits) if reads_one_by_one(found) else rules


def is_shared(found: Windows) -> bool:
    """Return whether several threads share a window: a contiguous one, or one too wide for a thread."""
    return has_reduced(found) and (found.is_contiguous or not has_tiles(found))


def _leaves_most_idle(found: Windows, limits: Limits) -> bool:
    """Return whether threads may share a window of nhwc, and one for each leaves multiprocessors without a warp."""
    at_once = power_of_2_in(found.vector, found.channels)
    few = found.outputs < at_once * limits.warp_size * limits.sm_count
    return found.is_nhwc and few and has_reduced(found)


def _tiled(problem: Problem, found: Windows, limits: Limits, maximum: bool) -> Mapping[str, Value]:
    """Return the config with the least estimate, in which a thread computes whole windows."""
    tiled: dict[str, Value] = {"VARIANT": "tiles", "BLOCK_K": 1, "SPLIT": 1, "num_stages": 1}
    least = inf
    chosen: Mapping[str, Value] = {}
    for high, wide in _sides(found):
        beside = 0.0 if found.is_nhwc else SETTINGS.outputs_gain * log2(high * wide)
        for block_q, block_n, warps in (_pixels if found.is_nhwc else _rows)(found, high, wide, limits.warp_size):
            config = {
                **tiled, "TILE_P": high, "TILE_Q": wide, "BLOCK_Q": block_q, "BLOCK_N": block_n, "num_warps": warps,
            }  # fmt: skip
            cost = estimate(found, config, limits, maximum=maximum) * (1 + SETTINGS.gain * log2(warps) + beside)
            if cost < least and valid(problem, config, limits):
                least, chosen = cost, config
    return chosen


def _sides(found: Windows) -> list[tuple[int, int]]:
    """Return choices of TILE_P and TILE_Q.

    A loop over the rows of a window has one row of outputs if they share none.
    """
    rows = SETTINGS.sides if found.rows.reach <= UNROLLED_ROWS or space.shares_rows(found.rows) else (1,)
    most_rows, most_columns = next_power_of_2(found.rows.count), next_power_of_2(found.columns.count)
    columns = (wide for wide in SETTINGS.sides if wide <= most_columns)
    tried = product((high for high in rows if high <= most_rows), columns)
    return [(high, wide) for high, wide in tried if high * wide <= SETTINGS.outputs]


def _rows(found: Windows, high: int, wide: int, lanes: int) -> Iterator[tuple[int, int, int]]:
    """Yield choices of BLOCK_Q, BLOCK_N and warps of nchw: threads along a row, then rows."""
    along = next_power_of_2(cdiv(found.columns.count, wide))
    most = next_power_of_2(found.images * found.channels * cdiv(found.rows.count, high))
    tried = [groups for groups in SETTINGS.groups if groups <= along] or [along]
    for warps, repeats, groups in product(SETTINGS.warps, SETTINGS.repeats, tried):
        if groups <= lanes * warps * repeats:
            yield groups * wide, min(lanes * warps * repeats // groups, most), warps


def _pixels(found: Windows, high: int, wide: int, lanes: int) -> Iterator[tuple[int, int, int]]:
    """Yield choices of BLOCK_Q, BLOCK_N and warps of nhwc: threads along channels, then pixels of a row."""
    vector, _ = vectors(found, wide)
    along, most = next_power_of_2(cdiv(found.columns.count, wide)), min(1024, next_power_of_2(found.channels))
    for warps in SETTINGS.pixel_warps:
        values, block_n = lanes * warps * vector, least_channels(found)
        while block_n <= min(most, SETTINGS.further * values):
            for share in SETTINGS.shares:
                yield min(max(1, values // block_n // share), along) * wide, block_n, warps
            block_n *= 2


def _least_shared(problem: Problem, found: Windows, rules: Mapping[str, Value], limits: Limits) -> Mapping[str, Value]:
    """Return the config with the least estimate of those in which threads that share windows load one by one.

    If it gains little over that of the rule, return that.
    """

    def cost(config: Mapping[str, Any]) -> float:
        return shared_estimate(found, config, limits) * (1 + SETTINGS.gain * log2(config["num_warps"]))

    fastest = min(_one_by_one(problem, found, limits), key=cost, default=rules)
    gains = SETTINGS.shared_gain * shared_estimate(found, fastest, limits) < shared_estimate(found, rules, limits)
    return fastest if gains or not valid(problem, rules, limits) else rules


def _one_by_one(problem: Problem, found: Windows, limits: Limits) -> Iterator[dict[str, Value]]:
    """Yield feasible configs in which the threads of a program share windows of nhwc and load elements one by one."""
    reduced: dict[str, Value] = {"VARIANT": "reduced", "TILE_P": 1, "TILE_Q": 1, "BLOCK_Q": 1, "num_stages": 1}
    blocks_n = _powers_of_2(least_channels(found), min(1024, next_power_of_2(found.channels)))
    for block_n, warps in product(blocks_n, SETTINGS.shared_warps):
        of_warp = block_n // max(1, min(warps, block_n // limits.warp_size))
        if found.channels + of_warp // 2 < block_n and of_warp < block_n:
            continue  # the last warp has no channels, or few
        most = SETTINGS.elements * limits.warp_size * warps // block_n
        for block_k in _powers_of_2(1, min(most, next_power_of_2(found.row_length))):
            for split in space.SPLITS:
                config = {**reduced, "BLOCK_N": block_n, "BLOCK_K": block_k, "SPLIT": split, "num_warps": warps}
                if not valid(problem, config, limits):
                    break  # more parts of a window are not feasible either
                yield config


def _powers_of_2(least: int, most: int) -> list[int]:
    """Return the powers of two from `least`, which is one, up to `most`."""
    return [least << doubling for doubling in range((most // least).bit_length())]


def _reduced(found: Windows, limits: Limits) -> Iterator[dict[str, Value]]:
    """Yield configs in which the threads of a program share windows, from large tiles to small ones."""
    is_short = found.is_contiguous and found.elements <= SETTINGS.short
    enough = (SETTINGS.programs_per_sm if is_short else SETTINGS.shared_per_sm) * limits.sm_count
    reduced: dict[str, Value] = {"VARIANT": "reduced", "TILE_P": 1, "TILE_Q": 1, "BLOCK_Q": 1}
    if found.is_nhwc and not _is_at_once(found):
        yield from _by_many_warps(found, reduced, limits)
    is_split = found.elements * (8 if found.is_nhwc else 1) >= space.SETTINGS.least_split
    parts = found.elements // (SETTINGS.part_pixels if found.is_nhwc else SETTINGS.part) if is_split else 1
    for last, (block_n, block_k, warps) in _marked(_shared_pixels(found) if found.is_nhwc else _shared_rows(found)):
        config: dict[str, Value] = {**reduced, "BLOCK_N": block_n, "BLOCK_K": block_k, "SPLIT": 1, "num_warps": warps}
        split = min(enough // tiles(found, config), parts, steps(found, block_k), space.SPLITS[-1])
        config["SPLIT"] = split = 1 << (max(1, split).bit_length() - 1)
        if found.is_nhwc and not _is_at_once(found):
            config["BLOCK_K"], config["num_warps"] = block_k, warps = _wider(found, block_k, warps, config, limits)
        is_looped = not unrolled(found, config) and steps(found, block_k) >= SETTINGS.stages * split
        config["num_stages"] = SETTINGS.stages if is_looped else 1
        is_full = tiles(found, config) * split >= SETTINGS.full[found.is_nhwc] * enough
        if is_full or last or (block_n == 1 and split > 1):
            yield config


def _by_many_warps(found: Windows, reduced: Mapping[str, Value], limits: Limits) -> Iterator[dict[str, Value]]:
    """Yield a config of nhwc with which many warps read a window at once, if programs are too few to fill the card.

    Programs that share it would wait for each other. A thread reads 16 bytes at a time.
    """
    block_n, threads = least_channels(found), SETTINGS.most_warps * limits.warp_size
    block_k = max(cdiv(found.vector * threads, block_n), next_power_of_2(found.row_length) // UNROLLED_BLOCKS)
    config: dict[str, Value] = {**reduced, "BLOCK_N": block_n, "BLOCK_K": block_k, "SPLIT": 1, "num_stages": 1}
    config["num_warps"] = SETTINGS.most_warps
    if unrolled(found, config) and 2 * tiles(found, config) <= SETTINGS.shared_per_sm * limits.sm_count:
        yield config


def _wider(found: Windows, block_k: int, warps: int, config: Mapping[str, Any], limits: Limits) -> tuple[int, int]:
    """Return BLOCK_K and warps with which programs read `in_flight` bytes at once, if their parts of windows have them.

    A thread reads as much as with those given.
    """
    split = config["SPLIT"]
    programs = tiles(found, config) * split
    while (
        warps < SETTINGS.long_warps[0]
        and programs * block_k * config["BLOCK_N"] * found.element_bytes < SETTINGS.in_flight * limits.sm_count
        and 2 * block_k * split <= found.row_length
    ):
        block_k, warps = 2 * block_k, 2 * warps
    return block_k, warps


def _is_at_once(found: Windows) -> bool:
    """Return whether windows of nhwc are read at once."""
    return found.is_contiguous and next_power_of_2(found.row_length) <= SETTINGS.short_pixels


def _marked(tried: list[tuple[int, int, int]]) -> Iterator[tuple[bool, tuple[int, int, int]]]:
    """Yield each with whether it is the last."""
    yield from ((index == len(tried) - 1, each) for index, each in enumerate(tried))


def _shared_rows(found: Windows) -> list[tuple[int, int, int]]:
    """Return choices of BLOCK_N, BLOCK_K and warps of nchw: few threads along a short window, all along a long one."""
    length, tried = next_power_of_2(found.row_length), []
    is_long = not found.is_contiguous or length > SETTINGS.short
    for warps in SETTINGS.long_warps if is_long else SETTINGS.short_warps:
        values = warps * 32 * (SETTINGS.values if is_long else SETTINGS.short_values)
        if not is_long:
            vector = found.vector if found.is_grouped else power_of_2_in(found.vector, found.elements)
            block_k = min(length, SETTINGS.lanes * vector)
        else:
            block_k = min(length, SETTINGS.block, values)
        block_n = min(max(values // min(length, values), 1), next_power_of_2(found.outputs))
        tried.append((block_n, block_k, _warps(warps, block_n * length)))
    return tried


def _shared_pixels(found: Windows) -> list[tuple[int, int, int]]:
    """Return choices of BLOCK_N, BLOCK_K and warps of nhwc: few channels of many pixels.

    The fewer pixels a program reads at once, the less its threads exchange in the end; short windows have few blocks.
    """
    length, channels = next_power_of_2(found.row_length), next_power_of_2(found.channels)
    tried = []
    for block_n in (2 * least_channels(found), least_channels(found)):
        block_n = min(block_n, channels)
        if _is_at_once(found):
            block_k = max(space.SETTINGS.blocks[0], length // UNROLLED_BLOCKS)
            values = length * block_n // UNROLLED_VALUES
            tried.append((block_n, block_k, next_power_of_2(max(1, min(SETTINGS.long_warps[0], values // 32)))))
        else:  # one warp at first, whose threads exchange little in the end
            tried.append((block_n, min(length, 32 * found.vector * SETTINGS.pixels // block_n), 1))
    return tried


def _warps(most: int, values: int) -> int:
    """Return the number of warps of which each thread has values of its own to read."""
    return min(most, max(1, values // (32 * space.SETTINGS.values[0])))
