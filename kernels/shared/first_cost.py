"""A first cost of tiles of warps with roles, which selects those that the estimate then compares.

Of some 500 tiles, it leaves 40.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, product
from operator import itemgetter
from typing import Any, NamedTuple

from tuner.kernels.shared.product_rows import right_across_k
from tuner.kernels.shared.roles import MOST_DEEP_COLUMNS, ROWS, WIDTHS, Roles, divides, may_take_turns, parts
from tuner.kernels.shared.tiling import fills_one_wave
from tuner.kernels.spec import Limits, Problem, Value, cdiv, itemsize, next_power_of_2


@dataclass(frozen=True)
class FirstCostSettings:
    """Figures of a card for the first cost. Cycles are those of a multiprocessor."""

    tiles: int = 40
    """Number of tiles that are estimated."""
    step_bytes: int = 128
    """Bytes along K of a step."""
    products: float = 5200.0
    """Products of a multiprocessor in a cycle, times the bytes of an element."""
    loaded_bytes: float = 64.0
    """Bytes that a multiprocessor loads in a cycle."""
    stored_bytes: float = 25.0
    """Bytes that a multiprocessor stores or adds up in a cycle."""
    join_cycles: float = 2600.0
    """Cycles in which slices wait for each other."""
    added: float = 128.0
    """Sums that a multiprocessor's threads add in a cycle."""


SETTINGS = FirstCostSettings()

_SHAPES = tuple(
    (swapped, rows, groups)
    for swapped, rows, groups in product((False, True), ROWS, (1, 2, 3))
    if divides(rows, groups)
)
"""Shapes of the left side: if the factors are swapped, rows of a tile, and groups that share them."""
_PINGPONG = tuple((swapped, rows, 1) for swapped, rows in product((False, True), ROWS) if may_take_turns(rows, 1))
"""Those of tiles that two groups take in turn."""


Promotion = Callable[[int, int, int], float]
"""Cycles in which sums leave the tensor cores in each step, by the tile: rows of the left factor, groups, and width."""


class LikelyTile(NamedTuple):
    """A tile of warps with roles and its first cost; tiles are ordered by that."""

    cycles: float
    waves: int
    swapped: bool
    rows: int
    """Rows of the left factor."""
    groups: int
    """Groups that share the rows."""
    width: int
    """Rows of the right factor."""
    slices: int
    pingpong: bool
    """True if two groups of as many warps take tiles in turn."""

    def knobs(self, block_k: int, wide: bool) -> dict[str, Value]:
        """Return the knobs of its config that all products have, with steps of `block_k` elements along K."""
        return {
            "BLOCK_M": self.width if self.swapped else self.rows,
            "BLOCK_N": self.rows if self.swapped else self.width,
            "BLOCK_K": block_k,
            "GROUP_M": 1,
            "VARIANT": "swapped" if self.swapped else "specialized",
            "SPLIT_K": self.slices,
            "GROUPS": self.groups,
            "WIDE": wide,
            "num_warps": 4,
            "num_stages": 14,
        }


def likely_tiles(
    problem: Problem,
    limits: Limits,
    slices: Iterable[Value],
    *,
    promotion: Promotion | None = None,
    pingpong: bool = False,
    may_run: Callable[[LikelyTile], bool] = lambda tile: True,
    settings: FirstCostSettings = SETTINGS,
) -> list[LikelyTile]:
    """Return the tiles with the least first cost. Some are not feasible.

    Args:
        slices: choices for the slices along K.
        promotion: cycles in which sums leave the tensor cores in each step; None if they stay.
        pingpong: whether two groups may take tiles in turn.
        may_run: returns False for tiles that the kernel never has; they are left out first.
    """
    choices = tuple(int(str(choice)) for choice in slices)
    found = chain(
        _tiles(problem, limits, choices, promotion, settings),
        _pingpong_tiles(problem, limits, settings) if pingpong else (),
    )
    return sorted(filter(may_run, found))[: settings.tiles]


def likely_configs(problem: Problem, limits: Limits, slices: Iterable[Value]) -> Iterator[dict[str, Value]]:
    """Yield the knobs of 16-bit products in the tiles with the least first cost. Some are not feasible.

    Args:
        slices: choices for the slices along K.
    """
    for tile in likely_tiles(problem, limits, slices, pingpong=True):
        wide = len(parts(tile.width)) > 1 and not right_across_k(problem, tile.swapped)
        is_small = tile.rows == 64 and tile.width <= MOST_DEEP_COLUMNS and not tile.pingpong
        for depth, is_wide in product((64, 128) if is_small else (64,), (True, False) if wide else (False,)):
            if depth == 64 or not is_wide:
                yield {**tile.knobs(depth, is_wide), "PINGPONG": tile.pingpong}


def _pingpong_tiles(problem: Problem, limits: Limits, settings: FirstCostSettings) -> Iterator[LikelyTile]:
    """Yield tiles that two groups take in turn: only the last one's store is not hidden."""
    for tile in _tiles(problem, limits, (1,), None, settings, _PINGPONG):
        if tile.waves > 1:
            store = tile.rows * tile.width * 2 / settings.stored_bytes
            yield tile._replace(cycles=tile.cycles - (tile.waves - 1) * store, pingpong=True)


def _tiles(
    problem: Problem,
    limits: Limits,
    choices: tuple[int, ...],
    promotion: Promotion | None,
    settings: FirstCostSettings,
    shapes: Iterable[tuple[bool, int, int]] = _SHAPES,
) -> Iterator[LikelyTile]:
    M, N, K = problem.sizes
    element, sm_count = itemsize(problem.dtype), limits.sm_count
    steps = cdiv(K * element, settings.step_bytes)
    for swapped, rows, groups in shapes:
        left, right = (N, M) if swapped else (M, N)
        if rows > max(16, next_power_of_2(left)):
            continue
        high = cdiv(left, rows)
        for width in WIDTHS:
            if width > max(16, next_power_of_2(right)):
                break
            tiles = high * cdiv(right, width)
            step = rows * width * settings.step_bytes / settings.products
            if promotion is not None:
                step = max(step, (step + rows * width / settings.added) / groups + promotion(rows, groups, width))
            loaded = (min(rows, left) + min(width, right)) * settings.step_bytes / settings.loaded_bytes
            for slices in choices:
                if slices > 1 and not fills_one_wave(tiles * slices, limits):
                    continue
                waves = cdiv(tiles * slices, sm_count)
                cost = waves * (cdiv(steps, slices) * max(step, loaded) + rows * width * 2 / settings.stored_bytes)
                if slices > 1:
                    cost += settings.join_cycles + (slices + 1) * rows * width * 4 / settings.stored_bytes
                yield LikelyTile(cost, waves, swapped, rows, groups, width, slices, False)


@dataclass(frozen=True)
class ChoiceSettings:
    """Settings of the choice by estimate."""

    slices: float = 1.03
    """Factor on the estimates of slices, which err most."""
    deep: float = 0.95
    """Factor on the estimates of warps with roles whose steps have 256 bytes along K. In one wave, 39 such configs took
    0.93 of theirs, where 290 of shorter steps took 0.98; 0.92 and 1.0 gave slower defaults. 24 with 8 bits
    whose sums leave the tensor cores took 0.94 of their estimates, relative to shorter steps (H200, 2026-11-30). The
    factor does not apply to 8-bit sums that stay there, which were not measured."""
    composed: float = 1.06
    """Factor on those of groups that take turns and need several wgmma instructions for their columns. It rests on
    796 x 10752 x 1024 nn: 1.06 to 1.14 times as long as others of the same estimate (H200, 2026-11-30)."""
    narrow: tuple[float, ...] = (1.1, 1.05, 1.0)
    """Factors on the estimates of tiles of one, two and three groups whose last 16 columns are a separate wgmma and do
    not lie along K: rows of 32 bytes. 38 such configs of one group took 1.11 times as long as others of the same
    estimate, 48 of two 1.05 (H200, 2026-11-30)."""
    least_rows: int = 17
    """Fewest rows and columns of a product whose config the estimate chooses; the rules choose below."""


CHOICE = ChoiceSettings()


def may_choose(problem: Problem, limits: Limits, settings: ChoiceSettings = CHOICE) -> bool:
    """Return whether the estimate may choose the config of a product: one of warps with roles, on Hopper."""
    return limits.capability[0] == 9 and min(problem["M"], problem["N"]) >= settings.least_rows


def slices_margin(config: Mapping[str, Any], settings: ChoiceSettings = CHOICE) -> float:
    """Return the factor on the estimate of a config for its slices."""
    return settings.slices if config["SPLIT_K"] != 1 else 1.0


def roles_margin(tile: Roles, settings: ChoiceSettings = CHOICE) -> float:
    """Return the factor on the estimate of a tile of warps with roles for its steps and columns."""
    composed = tile.turns > 1 and len(tile.parts) > 1 and not tile.wide
    is_deep = not tile.is_shallow and (tile.promoted or tile.element == 2)
    return (settings.deep if is_deep else 1.0) * (settings.composed if composed else 1.0)


def narrow_margin(tile: Roles, is_across_k: bool, settings: ChoiceSettings = CHOICE) -> float:
    """Return the factor on the estimate of a tile for its last columns.

    Args:
        is_across_k: whether the right factor does not lie along K.
    """
    is_narrow = is_across_k and len(tile.parts) > 1 and tile.parts[-1] == _NARROWEST
    return settings.narrow[tile.all_groups - 1] if is_narrow and not tile.wide else 1.0


_NARROWEST = 16
"""Columns of the narrowest wgmma of a factor that does not lie along K."""


def least(
    configs: Iterable[Mapping[str, Value]],
    rules: Mapping[str, Value],
    cost: Callable[[Mapping[str, Any]], float],
    is_valid: Callable[[Mapping[str, Any]], bool],
) -> Mapping[str, Value]:
    """Return the feasible config of the least cost, or that of the rules if none costs less.

    Args:
        cost: returns the estimated time of a config with the margins for what the estimate errs in.
    """
    most = cost(rules)
    costs = ((cost(config), config) for config in configs)
    less = sorted((each for each in costs if each[0] < most), key=itemgetter(0))
    return next((config for _, config in less if is_valid(config)), rules)
