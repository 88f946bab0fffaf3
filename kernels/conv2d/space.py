"""Feasible configs of conv2d: the single statement of the rules, by variant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tuner.kernels.conv2d.copies import convolved, copies_can, may_copy
from tuner.kernels.conv2d.layer import MOST_ROWS, direct_bytes, layer, product, run_of, steps, taps_steps
from tuner.kernels.conv2d.patches import CHOICES, Patch, count, has_view, is_even, patches
from tuner.kernels.conv2d.reference import precision
from tuner.kernels.shared.roles import SIDES
from tuner.kernels.shared.roles_space import (
    IN_STEP,
    ROLES_AS_IT_LIES,
    ROLES_SWAPPED,
    parts_of_roles,
    slices_can,
    whole_or_sliced_can,
)
from tuner.kernels.shared.tiling import accumulators_fit, on_wgmma, stage_bytes, suits
from tuner.kernels.spec import Knob, Limits, Problem, Value, cdiv, itemsize, next_power_of_2

SPLITS = (1, 2, 3, 4, 6, 8, 12, 16)
SLICES_PER_SM = 4
"""Most slices for each multiprocessor."""
SHORT_LOOP = 8
"""Most steps along K for which `boxes` may have two stages. They leave shared memory for more programs, but each step
waits for its loads (H200, 2026-11-30, tiles of 128 x 128 with two and three stages: one step 24.7 and 28.1 us, twelve
steps 61.2 and 49.5 us)."""

_TILES: Mapping[str, tuple[Value, ...]] = {
    "BLOCK_M": (16, 32, 64, 128, 256),
    "BLOCK_N": (16, 32, 64, 128, 256),
    "BLOCK_K": (16, 32, 64, 128),
    "num_stages": (2, 3, 4, 5, 6),
    **IN_STEP,
}
_PRODUCTS: Mapping[str, tuple[Value, ...]] = {"PATCH": (0,), "COPY": (False,)}
VARIANTS: Mapping[str, Mapping[str, tuple[Value, ...]]] = {
    "tiles": {**_TILES, "PATCH": (0,)},
    "specialized": {
        **_TILES,
        "BLOCK_M": (128, 256),
        "BLOCK_N": (64, 128, 160, 192, 256, 320),
        "BLOCK_K": (32, 64),
        "num_warps": (4,),
        "num_stages": (3, 4, 5, 6),
    },
    "boxes": {
        **_TILES,
        "BLOCK_M": (64, 128, 256),
        "BLOCK_N": (64, 128, 256),
        "BLOCK_K": (32, 64),
        "num_warps": (4, 8),
    },
    "direct": {
        **_TILES,
        "BLOCK_M": (64, 128),
        "BLOCK_N": (16, 32, 64, 128),
        "BLOCK_K": (16, 32, 64),
        "PATCH": (0,),
        "COPY": (False,),
        "SPLIT_K": (1,),
        "num_warps": (4,),
        "num_stages": (2,),
    },
    "gemm": {**ROLES_AS_IT_LIES, **_PRODUCTS},
    "gemm_swapped": {**ROLES_SWAPPED, **_PRODUCTS},
}
"""Choices of each variant; a knob that is missing has all its choices."""
AS_PRODUCTS: Mapping[str, str] = {"gemm": "specialized", "gemm_swapped": "swapped"}
"""Variants that compute one product of matrices, by the names that products have for them."""
BY_PATCHES = ("boxes", "specialized")
"""Variants whose tiles are patches of output pixels."""
WITH_ROLES = ("specialized", *AS_PRODUCTS)
"""Variants with roles for warps."""

KNOBS = (
    Knob(
        "VARIANT",
        tuple(VARIANTS),
        "tiles: through pointers; boxes: patches by the copy engine (Hopper on); specialized: with roles for warps; "
        "direct: few channels through registers; gemm: windows of one pixel as a product of matrices, with roles; "
        "gemm_swapped: the same, with filters as the left factor (Hopper)",
        "tiles",
    ),
    Knob("BLOCK_M", SIDES, "output pixels of a tile"),
    Knob("BLOCK_N", (*SIDES, 320), "filters of a tile"),
    Knob(
        "BLOCK_K", (16, 32, 64, 128), "channels of a step, or elements of a window or its row if that takes fewer steps"
    ),
    Knob("PATCH", tuple(range(CHOICES)), "which of the patches of BLOCK_M pixels boxes takes, by their number", 0),
    Knob("COPY", (False, True), "copy x and weight first, with padding and aligned channels", False),
    Knob(
        "GROUP_M",
        (1, 4, 8, 16),
        "rows of tiles walked together, or tiles of a program of direct; not compiled in (gemm: set by a rule)",
    ),
    Knob("SPLIT_K", SPLITS, "slices along K of each tile", 1),
    Knob("GROUPS", (1, 2, 3), "groups of four warps that multiply, of gemm", 2),
    Knob("PINGPONG", (False, True), "two groups multiply tiles in turn: one stores, one multiplies (gemm)", False),
    Knob("WIDE", (False, True), "one product a step for any number of columns (gemm; Triton 3.6, 3.7)", False),
    Knob("num_warps", (2, 4, 8), "warps that share a tile and its accumulators"),
    Knob("num_stages", (2, 3, 4, 5, 6, 14), "steps of the loop in flight; 14, of gemm: as many as fit"),
)


def parts() -> Iterator[Mapping[str, tuple[Value, ...]]]:
    """Yield the choices that go together: those of each variant, and fewer for products with roles."""
    for variant, choices in VARIANTS.items():
        of_variant = {"VARIANT": (variant,), **choices}
        if variant in AS_PRODUCTS:
            yield from parts_of_roles(of_variant, swapped=variant == "gemm_swapped")
        else:
            yield of_variant


def patch_of(problem: Problem, config: Mapping[str, Any]) -> Patch:
    """Return the patch of a config of boxes."""
    return patches(problem, config["BLOCK_M"])[config["PATCH"]]


def tile_count(problem: Problem, config: Mapping[str, Any]) -> int:
    """Return the number of tiles of output pixels and filters."""
    found = layer(problem)
    tall = cdiv(found.pixels, config["BLOCK_M"])
    if config["VARIANT"] in BY_PATCHES:
        tall = count(problem, patch_of(problem, config))
    return tall * cdiv(found.filters, config["BLOCK_N"])


def on_tensor_cores(problem: Problem) -> bool:
    """Return whether tensor cores compute the products; exact fp32 products are computed by threads."""
    return problem.dtype != "fp32" or precision(problem) == "tf32"


def tiles_can(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether the kernel that reads through pointers can run a config."""
    buffers = config["num_stages"] - (0 if on_wgmma(config["BLOCK_M"], config["num_warps"], limits) else 1)
    # Threads add up exact fp32 products from values in registers, which a large tile has no room for.
    small = on_tensor_cores(problem) or config["BLOCK_M"] * config["BLOCK_N"] <= 32 * 32 * config["num_warps"]
    matrix = product(problem)
    fits = small and accumulators_fit(matrix, config, limits)
    return fits and buffers * stage_bytes(matrix, config) <= limits.shared_bytes


def boxes_can(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether the kernel that reads patches can run a config."""
    found, size = layer(problem), itemsize(problem.dtype)
    store_bytes = config["BLOCK_M"] * config["BLOCK_N"] * size
    return (
        can_describe(problem, limits)
        and on_tensor_cores(problem)
        # A step of 128 bytes is the widest that the copy engine writes as the tensor cores read it.
        and 64 <= config["BLOCK_K"] * size <= 128
        and config["BLOCK_K"] <= max(32, found.channels)
        # Filters lie one pixel of the window after the other, and a step does not cross from one to the next.
        and (found.channels % config["BLOCK_K"] == 0 or found.taps == 1)
        and has_view(problem, config["BLOCK_K"])
        and is_even(problem)
        and (config["num_stages"] > 2 or taps_steps(problem, config["BLOCK_K"]) <= SHORT_LOOP * config["SPLIT_K"])
        and accumulators_fit(product(problem), config, limits)
        and config["num_stages"] * stage_bytes(product(problem), config) + store_bytes <= limits.shared_bytes
    )


def specialized_can(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether the kernel whose warps have roles can run a config."""
    block_m, size = config["BLOCK_M"], itemsize(problem.dtype)
    wide, rest = in_powers_of_2(config["BLOCK_N"])
    store_bytes = block_m * (wide // store_count(config) + rest) * size
    return (
        can_describe(problem, limits)
        # wgmma exists on Hopper only.
        and limits.capability[0] == 9
        and size == 2
        and config["BLOCK_K"] <= max(32, layer(problem).channels)
        and has_view(problem, config["BLOCK_K"])
        # Each thread holds 128 sums of two products, or 160 of one; its other registers hold addresses.
        and block_m * config["BLOCK_N"] <= (2 * 128 * 160 if block_m == 128 else 2 * 128 * 128)
        and config["num_stages"] * stage_bytes(product(problem), config) + store_bytes + 1024 <= limits.shared_bytes
    )


def direct_can(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether the kernel that loads windows to registers can run a config."""
    found, size = layer(problem), itemsize(problem.dtype)
    block_m, block_n, threads = config["BLOCK_M"], config["BLOCK_N"], 4 * limits.warp_size
    depth, shared_bytes = direct_bytes(problem, config)
    return (
        # wgmma exists on Hopper only.
        limits.capability[0] == 9
        and size == 2
        and found.has_rows
        # Elements of a row of an image, and those from the first row of a window to its last, are counted in 32 bits.
        and (found.columns.size + 2 * found.columns.padding + found.columns.reach) * found.channels <= MOST_ROWS
        and found.rows.reach * found.columns.size * found.channels <= MOST_ROWS
        # A thread holds its windows, two elements in a register, and its sums. Windows that are read in pairs of
        # elements spill at most 16 bytes of a thread. Those of odd rows are read one by one, and their offsets take
        # registers too: with more than 56 registers of windows, up to 280 bytes are spilled, which a search weighs
        # against smaller tiles (228 configs compiled for sm_90 by Triton 3.7, 2026-11-30).
        and block_m * depth <= threads * 2 * 80
        and block_m * block_n <= threads * 64
        and shared_bytes <= limits.shared_bytes // 2
        and config["BLOCK_K"] <= max(16, next_power_of_2(found.rows.window * run_of(problem).length))
    )


def store_count(config: Mapping[str, Any]) -> int:
    """Return the number of pieces in which warps with roles store a tile; two leave room for another stage."""
    return 2 if config["BLOCK_M"] * in_powers_of_2(config["BLOCK_N"])[0] == 2 * 128 * 128 else 1


def in_powers_of_2(filters: int) -> tuple[int, int]:
    """Return the powers of 2 whose sum is the number of filters: 256 and 64 of 320; a power of 2 and 0 otherwise."""
    wide = 1 << filters.bit_length() - 1
    return wide, filters - wide


def as_product(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the config of the product that a variant of `AS_PRODUCTS` computes."""
    return {**config, "VARIANT": AS_PRODUCTS[config["VARIANT"]], "ALIGN": False}


def is_product(problem: Problem, limits: Limits) -> bool:
    """Return whether a convolution is a product of matrices that the copy engine can read."""
    return layer(problem).is_matrix and can_describe(problem, limits)


def product_can(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether the kernel of products can run a config: warps with roles, without patches."""
    return is_product(problem, limits) and whole_or_sliced_can(product(problem), as_product(config), limits)


def can_describe(problem: Problem, limits: Limits) -> bool:
    """Return whether the copy engine, which Hopper introduced, can read pixels and filters: aligned to 16 bytes."""
    found, size = layer(problem), itemsize(problem.dtype)
    return limits.capability >= (9, 0) and found.channels * size % 16 == 0 and found.filters * size % 16 == 0


def worth_slicing(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether slices along K of two steps or more give idle multiprocessors work."""
    if config["VARIANT"] in AS_PRODUCTS:
        return slices_can(product(problem), config, limits)
    tiles, slices = tile_count(problem, config), config["SPLIT_K"]
    few = tiles <= limits.sm_count and tiles * slices <= SLICES_PER_SM * limits.sm_count
    return few and slices * 2 <= steps(problem, config["BLOCK_K"])


_CAN = {
    "tiles": tiles_can,
    "boxes": boxes_can,
    "specialized": specialized_can,
    "direct": direct_can,
    "gemm": product_can,
    "gemm_swapped": product_can,
}


def may_be_copied(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether x and weight are copied first only where they can be.

    Exact fp32 products take longer than their loads.
    """
    return not config["COPY"] or (may_copy(problem) and on_tensor_cores(problem) and copies_can(problem, config))


def has_choices(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether the values of all knobs are choices of the variant."""
    return all(config[name] in choices for name, choices in VARIANTS[config["VARIANT"]].items())


def tile_suits(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether a tile, and its place in the order, fit the problem."""
    return suits(product(convolved(problem, config)), config, limits)


def has_patch(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether there is a patch of this number, if the variant has patches."""
    if config["VARIANT"] not in BY_PATCHES:
        return True
    return config["PATCH"] < len(patches(convolved(problem, config), config["BLOCK_M"]))


def slices_suit(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether there are no slices along K, or they give idle multiprocessors work."""
    return config["SPLIT_K"] == 1 or worth_slicing(convolved(problem, config), config, limits)


def variant_can(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether the kernel of the variant can run a config."""
    return _CAN[config["VARIANT"]](convolved(problem, config), config, limits)


RULES = (may_be_copied, has_choices, tile_suits, has_patch, slices_suit, variant_can)
"""Constraints of a config; whether it can be copied is known before what is computed from the copies."""


def valid(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether a config is feasible."""
    return all(rule(problem, config, limits) for rule in RULES)
