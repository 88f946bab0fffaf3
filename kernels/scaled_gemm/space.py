"""Feasible configs of scaled_gemm: the single statement of the rules, by variant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tuner.kernels.shared.product_rows import aligned_first, may_align, unaligned
from tuner.kernels.shared.roles import (
    MOST_DEEP_COLUMNS,
    ONE_CHOICE,
    ROWS,
    WIDTHS,
    WITHOUT_ROLES,
    Roles,
    divides,
    is_narrowest,
)
from tuner.kernels.shared.roles_space import parts_of_roles
from tuner.kernels.shared.tiling import (
    accumulators_fit,
    fills_one_wave,
    has_steps,
    on_wgmma,
    slices_fill,
    stage_bytes,
    suits,
    threads_can,
    tile_count,
)
from tuner.kernels.spec import Limits, Problem, Value, cdiv, itemsize

BLOCK_COLUMNS = (64, 128)
"""Columns of tiles of warps with roles, with scales of blocks: all of a tile have one scale of b."""
BLOCK = 128
"""Number of columns of a, and of rows and columns of b, that share a scale; and number of products that the tensor
cores add up before the sum moves to fp32."""


def swapped(config: Mapping[str, Any]) -> bool:
    """Return whether b is the left factor, and the output is computed transposed."""
    return bool(config["VARIANT"] == "swapped" or config["BLOCK_M"] < 64 <= config["BLOCK_N"])


def is_promoted(problem: Problem) -> bool:
    """Return whether sums leave the tensor cores in each step."""
    return bool(problem["scales"] == "block" or problem["accumulate"] == "fp32")


def scales_unaligned(problem: Problem) -> bool:
    """Return whether columns of scales of a's blocks, M numbers each, are not aligned to 16 bytes."""
    return bool(problem["scales"] == "block" and problem["M"] % 4)


def may_copy_scales(problem: Problem, config: Mapping[str, Any]) -> bool:
    """Return whether there is room for a copy of the scales of a's blocks, which a call may give in any layout."""
    return bool(config["VARIANT"] in WITH_ROLES and problem["scales"] == "block")


def copies_scales(problem: Problem, config: Mapping[str, Any]) -> bool:
    """Return whether a config copies the scales of a's blocks to aligned columns; only warps with roles need them."""
    return bool(config["ALIGN"] and config["VARIANT"] in WITH_ROLES and scales_unaligned(problem))


def tile_of_roles(problem: Problem, config: Mapping[str, Any]) -> Roles:
    """Return the tile of warps with roles."""
    left, columns = config["BLOCK_M"], config["BLOCK_N"]
    if swapped(config):
        left, columns = columns, left
    return Roles(
        groups=config["GROUPS"],
        rows=left // config["GROUPS"],
        columns=columns,
        block_k=config["BLOCK_K"],
        element=itemsize(problem.dtype),
        most_stages=config["num_stages"],
        scale_bytes=itemsize("fp32") if problem["scales"] == "block" else 0,
        promoted=is_promoted(problem),
        wide=config["WIDE"],
    )


def staging_slots(problem: Problem, config: Mapping[str, Any], programs: int) -> int:
    """Return the pieces that each group of warps with roles stages beside the ring; 0 if programs have one tile each.

    Of two, one is written while the other is stored.
    """
    one_each = tile_count(problem, config) * config["SPLIT_K"] <= programs and not shares_evenly(config)
    return 0 if one_each else min(2, tile_of_roles(problem, config).chunks)


def shares_evenly(config: Mapping[str, Any]) -> bool:
    """Return whether warps with roles share the steps of all tiles evenly; more slices are equal parts of a tile."""
    return bool(config["VARIANT"] in WITH_ROLES and config["SPLIT_K"] == 2)


WITH_ROLES = ("specialized", "swapped")
"""Variants with roles for warps, which are one kernel."""

DESCRIBED = ("persistent", *WITH_ROLES)
"""Variants that read through descriptors, with persistent programs."""

SIDES = (16, 32, 64, 128, 256)
"""Rows or columns of the tiles that tensor cores multiply."""

AS_IT_LIES: Mapping[str, tuple[Value, ...]] = {"ALIGN": (False,)}
"""Choices of variants that never copy their factors."""
DEFAULTS: Mapping[str, Value] = {**WITHOUT_ROLES, "PROGRAMS": 1, "ALIGN": False}
"""Values of the knobs that a variant does not use."""

_ROLES: Mapping[str, tuple[Value, ...]] = {
    "BLOCK_K": (128, 256),
    "GROUP_M": (1,),  # `walked_together` decides
    "SPLIT_K": (1, 2, 3, 4, 6, 8),
    "PROGRAMS": (1,),
    "num_warps": (4,),
    "num_stages": (14,),
}

VARIANTS: Mapping[str, Mapping[str, tuple[Value, ...]]] = {
    "tiles": {
        "BLOCK_M": SIDES,
        "BLOCK_N": SIDES,
        "BLOCK_K": (64, 128, 256),
        "SPLIT_K": (1, 2, 4, 8, 16),
        "PROGRAMS": (1,),
        **ONE_CHOICE,
        "num_stages": (2, 3, 4, 5, 6),
    },
    "persistent": {
        "BLOCK_M": SIDES,
        "BLOCK_N": SIDES,
        "BLOCK_K": (128, 256),
        "SPLIT_K": (1, 2, 4, 8, 16),
        **ONE_CHOICE,
        "num_warps": (4, 8),  # more only divide their work
        "num_stages": (3, 4, 5, 6),  # with two the copy engine waits for the tensor cores
    },
    "specialized": {"BLOCK_M": ROWS, "BLOCK_N": WIDTHS, **_ROLES},
    "swapped": {"BLOCK_M": WIDTHS, "BLOCK_N": ROWS, **_ROLES},
    "vectors": {
        "BLOCK_M": (1, 2, 4, 8),
        "BLOCK_N": (1, 2, 4, 8),
        "BLOCK_K": (512, 1024, 2048, 4096, 8192),
        "GROUP_M": (1,),
        "SPLIT_K": (1,),
        "PROGRAMS": (1,),
        **ONE_CHOICE,
        **AS_IT_LIES,
        "num_stages": (1,),
    },
}
"""Choices of each variant; a knob that is missing has all its choices."""


def parts() -> Iterator[Mapping[str, tuple[Value, ...]]]:
    """Yield the choices that go together: those of each variant, and fewer for warps with roles.

    Their groups divide the rows, and deep steps are for small tiles.
    """
    for variant, choices in VARIANTS.items():
        if variant not in WITH_ROLES:
            yield {"VARIANT": (variant,), **choices}
            continue
        of_variant = {"VARIANT": (variant,), **choices}
        yield from parts_of_roles(of_variant, swapped=variant == "swapped", block_k=BLOCK, turns=False)


def card_can(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether the card has e4m3: tensor cores multiply it from Ada on, and earlier cards do not convert it."""
    return limits.capability >= (8, 9)


def tile_suits(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether a tile, and its place in the order, fit the problem."""
    return suits(problem, config, limits, walked(problem, config), least=1 if config["VARIANT"] == "vectors" else 16)


def step_suits(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether a step along K lies in one block of scales."""
    return bool(problem["scales"] == "tensor" or config["BLOCK_K"] <= BLOCK)


def copies_can(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether factors are copied only where their copies are aligned better."""
    return not (config["ALIGN"] and unaligned(problem)) or may_align(problem)


def has_choices(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether the values of all knobs are choices of the variant."""
    return all(config[name] in choices for name, choices in VARIANTS[config["VARIANT"]].items())


def variant_can(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether the kernel of the variant can run a config."""
    return _CAN[config["VARIANT"]](problem, config, limits)


def tiles_can(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether the kernel that reads through pointers can run a config."""
    buffers = config["num_stages"] - steps_in_registers(config, limits)
    return (
        (not config["ALIGN"] or len(aligned_first(problem, config)) > 0)
        and sums_fit(problem, config, limits)
        and buffers * stage_bytes(problem, config) <= limits.shared_bytes
    )


def steps_in_registers(config: Mapping[str, Any], limits: Limits) -> int:
    """Return the stages of `tiles` that are not in shared memory.

    wgmma reads the step in use there; older instructions copy it to registers first.
    """
    return 0 if wgmma(config, limits) else 1


def wgmma(config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether Hopper's wgmma multiplies; the longer side of a tile is the left factor's."""
    return on_wgmma(max(config["BLOCK_M"], config["BLOCK_N"]), config["num_warps"], limits)


def sums_fit(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether the sums of a tile fit the registers."""
    return accumulators_fit(problem, config, limits, sums_held(problem, config, limits))


def sums_held(problem: Problem, config: Mapping[str, Any], limits: Limits) -> int:
    """Return the number of fp32 sums held at once: a tile's, and those that the tensor cores still add up."""
    tile = config["BLOCK_M"] * config["BLOCK_N"]
    if problem["scales"] == "block":
        return 2 * tile
    if problem["accumulate"] == "fast" or not wgmma(config, limits):
        return tile
    columns = config["BLOCK_M"] if swapped(config) else config["BLOCK_N"]
    return tile + min(tile, config["num_warps"] * 16 * columns)


def descriptors_can(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether the copy engine, which Hopper introduced, can read the operands, or copies if they need some."""
    return limits.capability >= (9, 0) and config["ALIGN"] == bool(unaligned(problem))


def persistent_can(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether the persistent kernel can run a config."""
    tile, programs = config["BLOCK_M"] * config["BLOCK_N"], config["PROGRAMS"]
    shared = config["num_stages"] * stage_bytes(problem, config) + tile * itemsize(problem["out_dtype"])
    registers = sums_held(problem, config, limits) + 48 * config["num_warps"] * limits.warp_size
    return (
        descriptors_can(problem, config, limits)
        and sums_fit(problem, config, limits)
        # If two programs fit a multiprocessor, one multiplies while the other waits. Each takes 1 KB of shared memory
        # for the system, and about 48 registers of each thread beside its sums.
        and programs * (shared + 1024) <= limits.shared_bytes + 1024
        and (programs == 1 or programs * registers <= limits.registers_per_sm)
    )


def walked(problem: Problem, config: Mapping[str, Any]) -> int:
    """Return the number of rows of tiles, of the left factor of warps with roles, that are walked together."""
    side, size = ("BLOCK_N", problem["N"]) if config["VARIANT"] == "swapped" else ("BLOCK_M", problem["M"])
    return cdiv(size, config[side])


def roles_can(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether warps with roles can run a problem: on Hopper, if all that they read is aligned, or copied."""
    return limits.capability[0] == 9 and config["ALIGN"] == (bool(unaligned(problem)) or scales_unaligned(problem))


def specialized_can(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether the kernel whose warps have roles can run a config."""
    rows = config["BLOCK_N" if config["VARIANT"] == "swapped" else "BLOCK_M"]
    if not divides(rows, config["GROUPS"]) or not roles_can(problem, config, limits):
        return False
    tile, (M, N, _) = tile_of_roles(problem, config), problem.sizes
    left, right = (N, M) if config["VARIANT"] == "swapped" else (M, N)
    return (
        # With scales of blocks, each group loads those of its rows, and a tile's columns have one: with two products in
        # a step, which take turns with their sums, it would be slower.
        (problem["scales"] == "tensor" or (config["VARIANT"] == "specialized" and tile.columns in BLOCK_COLUMNS))
        and (not tile.wide or tile.can_be_wide)
        # Deeper steps are for small tiles. If sums leave the tensor cores, they need products by PTX, of a power of two
        # of columns.
        and (
            tile.block_k == BLOCK
            or (tile.left_rows == 64 and tile.columns <= MOST_DEEP_COLUMNS and tile.wide is tile.promoted)
        )
        and tile.fits(staging_slots(problem, config, limits.sm_count))
        and is_narrowest(left, right, tile, config["SPLIT_K"], limits.sm_count)
    )


_CAN = {
    "tiles": tiles_can,
    "persistent": persistent_can,
    "specialized": specialized_can,
    "swapped": specialized_can,
    "vectors": threads_can,
}


def worth_slicing(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether slices along K give idle multiprocessors work that outweighs adding up their sums."""
    if config["SPLIT_K"] == 1:
        return True
    if not has_steps(problem, config):
        return False
    if config["VARIANT"] in WITH_ROLES and not shares_evenly(config):
        return fills_one_wave(tile_count(problem, config) * config["SPLIT_K"], limits)
    return slices_fill(problem, config, limits)


RULES = (card_can, tile_suits, step_suits, worth_slicing, copies_can, has_choices, variant_can)
"""Constraints of a config. Those that depend on the first knobs come first, which shortens the list of all configs."""


def valid(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether a config is feasible."""
    return all(rule(problem, config, limits) for rule in RULES)
