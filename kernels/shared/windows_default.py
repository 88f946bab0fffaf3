"""Default config of pooling: a rule over windows and the limits of the card."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tuner.kernels.shared import windows_space as space
from tuner.kernels.shared.windows import Windows, power_of_2_in, windows
from tuner.kernels.shared.windows_launch import (
    UNROLLED_BLOCKS,
    UNROLLED_ROWS,
    UNROLLED_VALUES,
    tiles,
    unrolled,
    vectors,
)
from tuner.kernels.shared.windows_space import has_reduced, has_tiles, least_channels, steps, valid
from tuner.kernels.spec import Limits, Problem, Value, cdiv, next_power_of_2


@dataclass(frozen=True)
class DefaultSettings:
    """Settings of the rule, chosen so that an H200 has 40 KB of reads in flight on each multiprocessor."""

    warps: tuple[int, ...] = (2, 1)
    """Warps of a program of nchw, of a smaller one if there are few programs: small programs end at different times."""
    pixel_warps: tuple[int, ...] = (4, 2, 1)
    """The same of nhwc."""
    looped: tuple[int, int] = (8, 2)
    """For threads of nchw that loop over the rows of windows: columns of outputs in a tile, and tiles of a thread.
    Programs have one warp. More outputs share the cost of a step of the loop (H200, 2026-11-30: 2 x 363 x 7 x 459 with
    windows of 13 x 13 takes 47 us, with one tile of 4 columns 58 us)."""
    looped_idle: float = 1.15
    """Such tiles are used if a row, rounded up to whole tiles, has at most this many times its columns."""
    rows: tuple[int, int, int] = (1, 2, 4)
    """Rows of outputs of a thread of nchw: if windows share no rows, fewer than half of them, or more."""
    sides: tuple[int, ...] = (1, 2, 4, 8)
    """Rows or columns of outputs of a thread of nchw that are tried instead."""
    gain: float = 1.2
    """Least ratio of estimated costs for which they are taken."""
    registers: int = 64
    """Most registers of a thread of nchw for what it reads and computes; with more, fewer threads run."""
    waste: float = 1.05
    """Ratio of threads of a row to those with outputs, or to the fewest, up to which more of them are neighbours."""
    pixel_rows: tuple[int, int, int] = (2, 2, 4)
    """The same of nhwc."""
    groups: tuple[int, ...] = (64, 32, 16, 8)
    """Threads along a row of outputs."""
    row_bytes: int = 64
    """Fewest neighbouring bytes of a row of outputs of a program of nchw."""
    channel_bytes: int = 256
    """Most bytes of neighbouring channels of a program."""
    programs_per_sm: int = 4
    """Fewest programs for each multiprocessor; smaller problems have smaller tiles."""
    shared_per_sm: int = 8
    """The same of programs that share long windows."""
    values: int = 16
    """Number of elements of long windows that a thread reads at once."""
    short_values: int = 32
    """The same of short windows."""
    full: float = 0.75
    """Share of the programs of `shared_per_sm` that is enough, since windows are split into powers of two."""
    short: int = 256
    """Most elements of a contiguous window that is not looped over."""
    short_pixels: int = 128
    """The same if channels are contiguous."""
    lanes: int = 8
    """Threads along a short window."""
    block: int = 2048
    """Most neighbouring elements of a long window that a program reads at once."""
    pixels: int = 4
    """Pixels of a long window that a thread reads at once, if channels are contiguous."""
    part: int = 2048
    """Fewest elements of a part of a window, if programs share it; an eighth of it in nhwc."""
    stages: int = 3
    """Blocks of a long window in flight."""


SETTINGS = DefaultSettings()


def default(problem: Problem, limits: Limits) -> Mapping[str, Value]:
    """Return the first feasible config of the rule, in which threads compute more outputs if windows share more."""
    found = windows(problem)
    configs = list((_reduced if is_shared(found) else _tiled)(found, limits))
    return next((config for config in configs if valid(problem, config, limits)), configs[-1])


def is_shared(found: Windows) -> bool:
    """Return whether several threads share a window: a contiguous one, or one too wide for a thread."""
    return has_reduced(found) and (found.is_contiguous or not has_tiles(found))


def _tiled(found: Windows, limits: Limits) -> Iterator[dict[str, Value]]:
    """Yield configs in which a thread computes whole windows, from large tiles to small ones."""
    tile_p, tile_q = _outputs_of_a_thread(found)
    enough = SETTINGS.programs_per_sm * limits.sm_count
    tiled: dict[str, Value] = {"VARIANT": "tiles", "BLOCK_K": 1, "SPLIT": 1, "num_stages": 1}
    sides = ((tile_p, tile_q), (max(1, tile_p // 2), tile_q), (1, tile_q), (1, min(2, tile_q)), (1, 1))
    all_warps = SETTINGS.pixel_warps if found.is_nhwc else SETTINGS.warps
    tried = [(high, wide, warps, 1) for high, wide in sides for warps in all_warps]
    if _has_long_loops(found):
        columns, repeats = SETTINGS.looped
        tried.insert(0, (1, columns, 1, repeats))
    for high, wide, warps, repeats in tried:
        lanes = warps * limits.warp_size * repeats
        block_q, block_n = (_pixels if found.is_nhwc else _rows)(found, high, wide, lanes)
        config: dict[str, Value] = {
            **tiled, "TILE_P": high, "TILE_Q": wide, "BLOCK_Q": block_q, "BLOCK_N": block_n, "num_warps": warps,
        }  # fmt: skip
        if tiles(found, config) >= enough or (high, wide, warps) == (1, 1, 1):
            yield config


def _has_long_loops(found: Windows) -> bool:
    """Return whether threads of nchw loop over the rows of windows, and rows of outputs fill their widest tiles."""
    columns, wide = found.columns.count, SETTINGS.looped[0]
    fills = cdiv(columns, wide) * wide <= SETTINGS.looped_idle * columns
    return not found.is_nhwc and found.rows.reach > UNROLLED_ROWS and fills


def _outputs_of_a_thread(found: Windows) -> tuple[int, int]:
    """Return the rows and columns of outputs that a thread computes."""
    rows, columns = found.rows, found.columns
    shared = (rows.window > rows.stride) + (rows.window >= 2 * rows.stride)
    most = (SETTINGS.pixel_rows if found.is_nhwc else SETTINGS.rows)[shared]
    is_unrolled = rows.reach <= UNROLLED_ROWS
    tile = (
        min(most, next_power_of_2(rows.count)) if is_unrolled else 1,
        min(_columns_of_a_thread(found), next_power_of_2(columns.count)),
    )
    if found.is_nhwc or not is_unrolled:
        return tile
    sides = [(high, wide) for high in (SETTINGS.sides if shared else (1,)) for wide in SETTINGS.sides]
    tried = [(high, wide) for high, wide in sides if high <= 2 * rows.count and wide <= 2 * columns.count]
    cheapest = min(tried, key=lambda tile: (_cost(found, *tile), tile))
    return cheapest if _cost(found, *cheapest) * SETTINGS.gain < _cost(found, *tile) else tile


def _cost(found: Windows, high: int, wide: int) -> float:
    """Return the cost of an output of nchw, of which a thread computes high x wide; only ratios have a meaning.

    Elements that are read and combined cost instructions. Stores of fewer neighbours than a thread has columns reach as
    many sectors of L2 each. Threads that hold more than `registers` leave room for fewer others. The weights are
    chosen by searches of drawn problems on an H200.
    """
    rows, columns = found.rows, found.columns
    vector, stored = vectors(found, wide)
    before = cdiv(columns.padding, vector)
    read_rows = (high - 1) * rows.stride + rows.reach
    read_columns = (before + cdiv((wide - 1) * columns.stride + columns.reach - columns.padding, vector)) * vector
    read, outputs = read_rows * read_columns, high * wide
    combined = read_rows * wide * (columns.window - 1) + outputs * (rows.window - 1)
    stores = outputs // stored * max(1.0, wide * found.element_bytes / 4)
    spilled = max(0, read * found.element_bytes // 4 + outputs - SETTINGS.registers)
    idle = cdiv(rows.count, high) * high / rows.count * cdiv(columns.count, wide) * wide / columns.count
    return ((read + combined) / 4 + read / vector / 2 + 2 * stores + 2 * spilled + 5) / outputs * idle


def _columns_of_a_thread(found: Windows) -> int:
    """Return the columns of outputs that a thread computes: those of 16 bytes of the image.

    They are half as many if rows are aligned to less than that, or to less than half of it if windows share columns. A
    pixel of nhwc has 16 bytes of channels; if channels are aligned to less than half of that, a thread has several.
    """
    if found.is_nhwc:
        return max(1, found.vector // (2 * power_of_2_in(found.vector, found.channels)))
    neighbours, half = power_of_2_in(found.vector, found.columns.size), found.vector // 2
    shares = found.columns.window > found.columns.stride
    read = found.vector if shares and neighbours >= half else max(neighbours, half)
    return max(1, read >> (found.columns.stride.bit_length() - 1))


def _rows(found: Windows, tile_p: int, tile_q: int, lanes: int) -> tuple[int, int]:
    """Return BLOCK_Q and BLOCK_N of nchw: as many threads along a row as leave about the fewest of them idle.

    They store at least `row_bytes` of a row, if it has as many: shorter transfers waste sectors.
    """
    along = cdiv(found.columns.count, tile_q)
    groups = next_power_of_2(along)
    shortest = min(groups, max(SETTINGS.groups[-1], SETTINGS.row_bytes // (tile_q * found.element_bytes)))
    if groups > shortest:
        tried = [group for group in SETTINGS.groups if shortest <= group <= groups]
        least = min(cdiv(along, group) * group for group in tried)
        groups = next(group for group in tried if cdiv(along, group) * group <= SETTINGS.waste * least)
    most = next_power_of_2(found.images * found.channels * cdiv(found.rows.count, tile_p))
    return groups * tile_q, min(max(1, lanes // groups), most)


def _pixels(found: Windows, tile_p: int, tile_q: int, lanes: int) -> tuple[int, int]:
    """Return BLOCK_Q and BLOCK_N of nhwc: neighbouring channels first, then pixels, then further channels."""
    vector = power_of_2_in(found.vector, found.channels)
    most = next_power_of_2(found.channels)
    channels = min(most, SETTINGS.channel_bytes // found.element_bytes, lanes * vector)
    along = cdiv(found.columns.count, tile_q)
    most_groups = min(next_power_of_2(along), max(1, lanes * vector // channels))
    groups = _evenly(along, most_groups)
    groups = groups if most * groups >= lanes * vector else most_groups
    return groups * tile_q, min(most, max(channels, lanes * vector // groups), 1024)


def _evenly(along: int, most: int) -> int:
    """Return the largest power of two up to `most` whose multiples leave few threads without one of `along` pixels."""
    fits = (groups for groups in (most >> power for power in range(most.bit_length())))
    return next((g for g in fits if g == 1 or cdiv(along, g) * g <= SETTINGS.waste * along), 1)


def _reduced(found: Windows, limits: Limits) -> Iterator[dict[str, Value]]:
    """Yield configs in which the threads of a program share windows, from large tiles to small ones."""
    is_short = found.is_contiguous and found.elements <= SETTINGS.short
    enough = (SETTINGS.programs_per_sm if is_short else SETTINGS.shared_per_sm) * limits.sm_count
    reduced: dict[str, Value] = {"VARIANT": "reduced", "TILE_P": 1, "TILE_Q": 1, "BLOCK_Q": 1}
    parts = found.elements * (8 if found.is_nhwc else 1) // SETTINGS.part
    for last, (block_n, block_k, warps) in _marked(_shared_pixels(found) if found.is_nhwc else _shared_rows(found)):
        config: dict[str, Value] = {**reduced, "BLOCK_N": block_n, "BLOCK_K": block_k, "SPLIT": 1, "num_warps": warps}
        split = min(enough // tiles(found, config), parts, steps(found, block_k), space.SPLITS[-1])
        config["SPLIT"] = split = 1 << (max(1, split).bit_length() - 1)
        is_looped = not unrolled(found, config) and steps(found, block_k) >= SETTINGS.stages * split
        config["num_stages"] = SETTINGS.stages if is_looped else 1
        if tiles(found, config) * split >= SETTINGS.full * enough or last or (block_n == 1 and split > 1):
            yield config


def _marked(tried: list[tuple[int, int, int]]) -> Iterator[tuple[bool, tuple[int, int, int]]]:
    """Yield each with whether it is the last."""
    yield from ((index == len(tried) - 1, each) for index, each in enumerate(tried))


def _shared_rows(found: Windows) -> list[tuple[int, int, int]]:
    """Return choices of BLOCK_N, BLOCK_K and warps of nchw: few threads along a short window, all along a long one."""
    length, tried = next_power_of_2(found.row_length), []
    is_long = not found.is_contiguous or length > SETTINGS.short
    for warps in SETTINGS.pixel_warps if is_long else SETTINGS.warps:
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
    warps = SETTINGS.pixel_warps[0]
    tried = []
    for block_n in (2 * least_channels(found), least_channels(found)):
        block_n = min(block_n, channels)
        if found.is_contiguous and length <= SETTINGS.short_pixels:
            block_k = max(space.SETTINGS.blocks[0], length // UNROLLED_BLOCKS)
            values = length * block_n // UNROLLED_VALUES
            tried.append((block_n, block_k, next_power_of_2(max(1, min(warps, values // 32)))))
        else:
            block_k = min(length, warps * 32 * found.vector * SETTINGS.pixels // block_n)
            tried.append((block_n, block_k, _warps(warps, block_n * block_k)))
    return tried


def _warps(most: int, values: int) -> int:
    """Return the number of warps of which each thread has values of its own to read."""
    return min(most, max(1, values // (32 * space.SETTINGS.values[0])))
