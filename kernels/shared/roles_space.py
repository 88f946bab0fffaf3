"""Feasible tiles of 16-bit products by warps with roles, whole or in slices along K, of any op that has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tuner.kernels.shared.product_rows import right_across_k
from tuner.kernels.shared.roles import (
    MOST_DEEP_COLUMNS,
    ROWS,
    WIDTHS,
    WITHOUT_ROLES,
    Roles,
    divides,
    is_narrowest,
    may_take_turns,
)
from tuner.kernels.shared.tiling import fills_one_wave, has_steps, tile_count
from tuner.kernels.spec import Limits, Problem, Value, cdiv, itemsize

ROLES: Mapping[str, tuple[Value, ...]] = {
    "BLOCK_K": (64, 128),
    "GROUP_M": (1,),  # `walked_together` decides
    "SPLIT_K": (1, 2, 3, 4, 6, 8),
    "num_warps": (4,),
    "num_stages": (14,),
}
"""Choices of the knobs that all products by warps with roles have, beside those of the tile."""
ROLES_AS_IT_LIES: Mapping[str, tuple[Value, ...]] = {"BLOCK_M": ROWS, "BLOCK_N": WIDTHS, **ROLES}
"""Choices if a is the left factor."""
ROLES_SWAPPED: Mapping[str, tuple[Value, ...]] = {"BLOCK_M": WIDTHS, "BLOCK_N": ROWS, **ROLES}
"""Choices if b is the left factor."""

WITHOUT_TURNS: Mapping[str, Value] = {**WITHOUT_ROLES, "PINGPONG": False}
"""Knobs of 16-bit products by warps with roles in the configs of other variants, which do not use them."""
IN_STEP: Mapping[str, tuple[Value, ...]] = {name: (value,) for name, value in WITHOUT_TURNS.items()}
"""The same as choices of a variant."""


def parts_of_roles(
    choices: Mapping[str, tuple[Value, ...]], *, swapped: bool, block_k: int = 64, turns: bool = True
) -> Iterator[Mapping[str, Any]]:
    """Yield the choices that go together: groups divide the rows, and deep steps are for small tiles.

    Args:
        choices: all choices of a variant.
        swapped: whether b is the left factor.
        block_k: elements along K of a step that is not deep.
        turns: whether groups may take turns.
    """
    left, right = ("BLOCK_N", "BLOCK_M") if swapped else ("BLOCK_M", "BLOCK_N")
    deep = tuple(width for width in WIDTHS if width <= MOST_DEEP_COLUMNS)
    together: dict[str, tuple[Value, ...]] = {"PINGPONG": (False,)} if turns else {}
    one = {**choices, "BLOCK_K": (block_k,), "WIDE": (False, True), **together}
    for rows in ROWS:
        yield {**one, left: (rows,), "GROUPS": tuple(groups for groups in (1, 2, 3) if divides(rows, groups))}
        if turns and may_take_turns(rows, 1):
            yield {**one, left: (rows,), "GROUPS": (1,), "PINGPONG": (True,)}
    yield {**one, left: (64,), right: deep, "BLOCK_K": (2 * block_k,), "GROUPS": (1,)}


def tile_of_roles(problem: Problem, config: Mapping[str, Any]) -> Roles:
    """Return the tile of warps with roles."""
    left, columns = config["BLOCK_M"], config["BLOCK_N"]
    if config["VARIANT"] == "swapped":
        left, columns = columns, left
    return Roles(
        groups=config["GROUPS"],
        rows=left // config["GROUPS"],
        columns=columns,
        block_k=config["BLOCK_K"],
        element=itemsize(problem.dtype),
        most_stages=config["num_stages"],
        wide=config["WIDE"],
        turns=2 if config["PINGPONG"] else 1,
    )


def staging_slots(problem: Problem, config: Mapping[str, Any], programs: int) -> int:
    """Return the pieces that each group of warps with roles stages beside the ring; 0 if programs have one tile each.

    The ring is free when a program's last tile is stored. If it has others, the ring already holds the next one: half
    of a tile at once leaves room for another stage.
    """
    one_each = tile_count(problem, config) * config["SPLIT_K"] <= programs
    if one_each and config["VARIANT"] != "stream_k":
        return 0
    return cdiv(tile_of_roles(problem, config).chunks, 2)


def shared_tiles(problem: Problem, config: Mapping[str, Any], programs: int) -> int:
    """Return the number of tiles cut evenly among all programs: one full wave, and those beyond full waves.

    Each program then gets more than one tile's worth of steps, and waits for the sums of one other at most. The shared
    tiles have the lowest numbers, and are computed first.
    """
    return programs + tile_count(problem, config) % programs if config["VARIANT"] == "stream_k" else 0


def tile_can(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether warps with roles can compute a tile of operands that the copy engine can read."""
    swapped = config["VARIANT"] == "swapped"
    left = config["BLOCK_N" if swapped else "BLOCK_M"]
    if (
        # wgmma exists on Hopper only, and transposes 16-bit operands only.
        limits.capability[0] != 9
        or itemsize(problem.dtype) != 2
        or not (may_take_turns if config["PINGPONG"] else divides)(left, config["GROUPS"])
    ):
        return False
    tile, slots = tile_of_roles(problem, config), staging_slots(problem, config, limits.sm_count)
    is_across = right_across_k(problem, swapped)
    return (
        # Rows of the right factor that lie across K are read 32 bytes or more at once.
        (tile.parts[-1] >= 16 or not is_across)
        and (not tile.wide or (not is_across and tile.can_be_wide))
        and (tile.block_k == 64 or (tile.left_rows == 64 and tile.columns <= MOST_DEEP_COLUMNS))
        and tile.fits(slots)
    )


def whole_or_sliced_can(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether warps with roles can compute all tiles whole, or all in equal slices."""
    M, N, _ = problem.sizes
    left, right = (N, M) if config["VARIANT"] == "swapped" else (M, N)
    return (
        tile_can(problem, config, limits)
        # The group whose turn it is not stores a tile meanwhile, so programs have several.
        and (not config["PINGPONG"] or (config["SPLIT_K"] == 1 and tile_count(problem, config) > limits.sm_count))
        and is_narrowest(left, right, tile_of_roles(problem, config), config["SPLIT_K"], limits.sm_count)
    )


def slices_can(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether slices along K give idle multiprocessors work: all run at once, each of two steps or more."""
    return has_steps(problem, config) and fills_one_wave(tile_count(problem, config) * config["SPLIT_K"], limits)
