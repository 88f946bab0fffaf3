"""Default config of attention: a rule over sizes and the limits of the card."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from tuner.kernels.attention.sequences import group, key_lengths, paged, pairs, window
from tuner.kernels.attention.space import SPLITS, head_width, program_count, shared_bytes, valid
from tuner.kernels.spec import Limits, Problem, Value, cdiv, next_power_of_2


@dataclass(frozen=True)
class DefaultSettings:
    """Settings of the rule, by 48 problems on an H200 (2026-11-30). Times are in those of a block of keys."""

    few_rows: int = 64
    """Rows of a group of heads up to which they are packed into one tile."""
    many_rows: tuple[tuple[int, int, int], ...] = ((128, 128, 8), (128, 64, 8), (128, 32, 8), (64, 64, 4), (64, 32, 4))
    """Tiles of many rows, best first: BLOCK_M, BLOCK_N and warps."""
    many_rows_before_hopper: tuple[tuple[int, int, int], ...] = ((128, 64, 8), (128, 32, 8), (64, 64, 4), (64, 32, 4))
    """The same for instructions that read keys from registers, which leave less room for scores."""
    many_stages: tuple[int, ...] = (2, 1)
    """Stages of many rows, best first."""
    many_stages_of_pages: tuple[int, ...] = (5, 3, 2, 1)
    """The same if keys lie in pages. 16 rows of 40 heads, of which 5 share keys, on 4 x 32,768 keys take 158 us with
    five stages, 214 with three and 222 with two (H200, 2026-11-30)."""
    roles: tuple[tuple[int, int], ...] = ((128, 2), (64, 3), (64, 2))
    """Keys and stages of many rows if warps have roles, best first."""
    roles_of_windows: tuple[tuple[int, int], ...] = ((64, 4), (64, 3), (64, 2))
    """The same if each row sees no more than `narrow` keys and several heads share them. The fewer rows of each head a
    tile has, the fewer keys it reads: 128 rows of one head see 256 keys in blocks, 16 of eight heads 192 (H200,
    2026-11-30: 64 heads of 8,192 x 64, window of 128, 130 us instead of 186)."""
    narrow: int = 128
    """Number of keys of a narrow window: no more than the rows of a tile."""
    keys_of_shares: int = 128
    """Keys of a block for which `stages_of_shares` is."""
    stages_of_shares: int = 3
    """Stages of 128 keys in several pages if the keys are split, which leaves the room of out's rows. 16 rows of 64
    heads, of which 8 share keys, on 4 x 32,768 keys in pages of 16 take 143 us, with two stages 149; on 8 x 16,384 keys
    of 4 heads 83 and 86. With keys in one page or in none, two stages are as fast (H200, 2026-12-01)."""
    turns_up_to: int = 64
    """Head size up to which groups take turns: exponentials then take as long as products. 2 % faster; slower above."""
    short_keys: int = 256
    """Keys below which blocks have 64: with 128, half of the last block may be empty."""
    rows_of_roles: int = 128
    """Rows from which warps have roles."""
    few_tiles: tuple[tuple[int, int], ...] = ((64, 2), (64, 4), (32, 4), (32, 2), (16, 2), (16, 1))
    """Tiles of few rows, best first: keys and warps."""
    few_tiles_of_pages: tuple[tuple[int, int], ...] = ((64, 2), (32, 2), (16, 2), (16, 1))
    """The same if a block has the keys of several pages, which each warp looks up."""
    few_tiles_of_64: tuple[tuple[int, int], ...] = ((64, 4), (32, 4), (16, 4))
    """The same for tiles of 64 rows, which four warps multiply together on Hopper."""
    few_stages: tuple[int, ...] = (5, 4, 3, 2, 1)
    """Stages of few rows, best first, of which two programs fit a multiprocessor."""
    registers_beside: int = 100
    """Registers of a thread beside those of sums and scores."""
    start: float = 4.0
    """Time that a program takes beside its blocks of keys."""
    joining: float = 6.0
    """Time of adding the shares in a second launch."""
    alone: float = 1.5
    """Time of a program that has a multiprocessor for itself and waits for memory, relative to its share of it."""
    uneven: float = 0.1
    """Part of a program's time that others wait for at the end if sequences have different lengths."""
    margin: float = 1.03
    """Time relative to the least up to which fewer shares are preferred."""


SETTINGS = DefaultSettings()


def default(problem: Problem, limits: Limits) -> Mapping[str, Value]:
    """Return large tiles for many rows, and for few rows tiles of packed heads whose keys are split over the card.

    On Hopper, warps have roles if the rows of a head, or of packed heads, fill more than half of a tile.
    """
    rows = problem["M"] * group(problem)
    if rows <= SETTINGS.few_rows:
        return _of_few_rows(problem, limits)
    for is_packed, block_n, stages in _roles(problem):
        config = {
            **_config(128, block_n, 4, stages),
            "VARIANT": "specialized",
            "PACK": is_packed,
            "TURNS": problem["D"] <= SETTINGS.turns_up_to,
        }
        if valid(problem, config, limits):
            return _with_stages(problem, _split(problem, config, limits), limits)
    tiles = SETTINGS.many_rows if limits.capability >= (9, 0) else SETTINGS.many_rows_before_hopper
    choices = SETTINGS.many_stages_of_pages if paged(problem) else SETTINGS.many_stages
    for (block_m, block_n, warps), stages in product(tiles, choices):
        config = _config(block_m, block_n, warps, stages)
        if problem["M"] <= block_m // 2 and group(problem) > 1:
            config["PACK"] = True
        if valid(problem, config, limits):
            return _split(problem, config, limits)
    return _of_few_rows(problem, limits)


def _roles(problem: Problem) -> Iterator[tuple[bool, int, int]]:
    """Yield whether heads are packed, with keys and stages, if warps have roles, best first."""
    is_short, can_pack = problem["M"] < SETTINGS.rows_of_roles, group(problem) > 1
    seen = window(problem) * (1 if problem["causal"] else 2)
    if 0 < seen <= min(SETTINGS.narrow, problem["N"]):
        yield from ((True, *tile) for tile in SETTINGS.roles_of_windows)
    for block_n, stages in SETTINGS.roles if can_pack or not is_short else ():
        if block_n <= 64 or problem["N"] >= SETTINGS.short_keys:
            yield is_short, block_n, stages


def _with_stages(problem: Problem, config: Mapping[str, Value], limits: Limits) -> Mapping[str, Value]:
    """Return a config with more stages if it splits keys that are copied from several pages for each block."""
    block_n = int(str(config["BLOCK_N"]))
    more = {**config, "num_stages": SETTINGS.stages_of_shares}
    is_asked = 0 < problem["page"] < block_n == SETTINGS.keys_of_shares and config["SPLITS"] != 1
    return more if is_asked and valid(problem, more, limits) else config


def _of_few_rows(problem: Problem, limits: Limits) -> Mapping[str, Value]:
    """Return a config whose tile has the rows of all heads that share keys, with many blocks of keys in flight."""
    is_grouped = group(problem) > 1
    block_m = min(64, max(16, next_power_of_2(problem["M"] * group(problem))))
    found: dict[str, Value] = {}
    tiles = SETTINGS.few_tiles_of_pages if 0 < problem["page"] < SETTINGS.few_tiles[0][0] else SETTINGS.few_tiles
    for keys, warps in tiles if block_m < 64 else SETTINGS.few_tiles_of_64:
        for stages in SETTINGS.few_stages:
            config = _config(block_m, min(keys, max(16, next_power_of_2(problem["N"]))), warps, stages)
            config["PACK"] = is_grouped
            if valid(problem, config, limits):
                if 2 * shared_bytes(problem, config, limits) <= limits.shared_bytes:
                    return _split(problem, config, limits)
                found = config
    return _split(problem, found, limits)


def _split(problem: Problem, config: dict[str, Value], limits: Limits) -> Mapping[str, Value]:
    """Return the config with the fewest shares of the keys that take the least time.

    A multiprocessor takes as long as its programs, each with its blocks of keys, a start and an end. Programs that it
    runs at once share the memory's bandwidth; one alone does not use its share.
    """
    programs, count = program_count(problem, config), limits.sm_count
    seen = cdiv(pairs(problem, problem["M"], max(key_lengths(problem))), problem["M"])
    blocks = max(1, cdiv(seen, int(str(config["BLOCK_N"]))))
    least = SETTINGS.alone if resident(problem, config, limits) > 1 else 1.0
    waiting = SETTINGS.uneven if len(set(key_lengths(problem))) > 1 else 0.0

    def time(splits: int) -> float:
        each = cdiv(blocks, splits) + SETTINGS.start
        programs_of_one = max(least, cdiv(programs * splits, count))
        return (programs_of_one + waiting) * each + (SETTINGS.joining if splits > 1 else 0.0)

    choices = [splits for splits in SPLITS if valid(problem, {**config, "SPLITS": splits}, limits)]
    limit = SETTINGS.margin * min(map(time, choices))
    return {**config, "SPLITS": next(splits for splits in choices if time(splits) <= limit)}


def resident(problem: Problem, config: Mapping[str, Any], limits: Limits) -> int:
    """Return the number of programs that a multiprocessor runs at once, by shared memory and by registers."""
    if config["VARIANT"] == "specialized":
        return 1
    threads = config["num_warps"] * limits.warp_size
    sums = config["BLOCK_M"] * (head_width(problem) + config["BLOCK_N"]) // threads
    registers = min(limits.registers_per_thread, sums + SETTINGS.registers_beside) * threads
    by_shared = limits.shared_bytes // shared_bytes(problem, config, limits)
    return max(1, min(by_shared, limits.registers_per_sm // registers))


def _config(block_m: int, block_n: int, warps: int, stages: int) -> dict[str, Any]:
    """Return a config of the variant that runs on every card."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "PACK": False, "SPLITS": 1}
    return {**tile, "VARIANT": "tiles", "TURNS": False, "num_warps": warps, "num_stages": stages}
