"""Feasible configs of gemm: the single statement of the rules, by variant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tuner.kernels.shared.product_rows import aligned_first, elements_per_access, may_align, transposed, unaligned
from tuner.kernels.shared.roles_space import (
    IN_STEP,
    ROLES,
    ROLES_AS_IT_LIES,
    ROLES_SWAPPED,
    WITHOUT_TURNS,
    parts_of_roles,
    slices_can,
    tile_can,
    whole_or_sliced_can,
)
from tuner.kernels.shared.tiling import (
    LINE_BYTES,
    accumulators_fit,
    fills_one_wave,
    has_steps,
    little_left,
    on_wgmma,
    slices_fill,
    stage_bytes,
    suits,
    threads_can,
    tile_count,
)
from tuner.kernels.spec import Limits, Problem, Value, cdiv, itemsize


def precision(problem: Problem) -> Value:
    """Return how fp32 products are computed: `ieee` or `tf32`; `ieee` for other dtypes, which have one way."""
    return dict(problem.attributes).get("precision", "ieee")


def sliced_tiles(problem: Problem, config: Mapping[str, Any], sm_count: int) -> int:
    """Return the number of tiles cut along K: all, or those after the last full wave of a persistent kernel."""
    if config["SPLIT_K"] == 1:
        return 0
    tiles = tile_count(problem, config)
    return tiles % sm_count if config["VARIANT"] == "persistent" else tiles


WITH_ROLES = ("specialized", "swapped", "stream_k")
"""Variants with roles for warps, which are one kernel."""

DESCRIBED = ("persistent", *WITH_ROLES)
"""Variants that read through descriptors, with one program for each multiprocessor."""

AS_IT_LIES: Mapping[str, tuple[Value, ...]] = {"ALIGN": (False,)}
"""Choices of variants that never copy their factors."""
DEFAULTS: Mapping[str, Value] = {**WITHOUT_TURNS, "ALIGN": False}
"""Values of the knobs that a variant does not use."""
PLAIN: Mapping[str, Value] = {**DEFAULTS, "GROUP_M": 1, "SPLIT_K": 1, "STORES": 1}
"""Usual values of the knobs that a rule does not set: no slices, one row of tiles at a time, one store for each."""

_ROLES: Mapping[str, tuple[Value, ...]] = {**ROLES, "STORES": (1,)}  # `staging_slots` decides on stores

VARIANTS: Mapping[str, Mapping[str, tuple[Value, ...]]] = {
    "tiles": {
        "BLOCK_M": (16, 32, 64, 128, 256),
        "BLOCK_N": (16, 32, 64, 128, 256),
        "BLOCK_K": (32, 64, 128, 256),
        "SPLIT_K": (1, 2, 4, 8, 16, 32, 64),
        "STORES": (1,),
        **IN_STEP,
        "num_stages": (2, 3, 4, 5, 6),
    },
    "persistent": {
        "BLOCK_M": (16, 32, 64, 128, 256),
        "BLOCK_N": (16, 32, 64, 128, 256),
        "BLOCK_K": (32, 64, 128, 256),
        "SPLIT_K": (1, 2, 4, 8, 16),
        "STORES": (1, 2),
        **IN_STEP,
        "num_warps": (2, 4, 8),  # more only divide their work
        "num_stages": (3, 4, 5, 6),  # with two the copy engine waits for the tensor cores
    },
    "specialized": {**ROLES_AS_IT_LIES, **_ROLES},
    "swapped": {**ROLES_SWAPPED, **_ROLES},
    "stream_k": {
        **_ROLES,
        "BLOCK_K": (64,),
        "BLOCK_M": (128, 256),
        "BLOCK_N": (64, 128, 192, 256),
        "SPLIT_K": (1,),
        **IN_STEP,
    },
    "streamed": {
        "BLOCK_M": (16,),
        "BLOCK_N": (8, 16, 32),
        "BLOCK_K": (128, 256, 512, 1024),
        "GROUP_M": (1,),
        "SPLIT_K": (1,),
        "STORES": (1,),
        **IN_STEP,
        **AS_IT_LIES,
        "num_warps": (2, 4, 8),
        "num_stages": (3, 4),
    },
    "vectors": {
        "BLOCK_M": (1, 2, 4, 8, 16, 32, 64),
        "BLOCK_N": (1, 2, 4, 8, 16, 32, 64),
        "BLOCK_K": (64, 128, 256, 512, 1024, 2048, 4096),
        "GROUP_M": (1,),
        "SPLIT_K": (1,),
        "STORES": (1,),
        **IN_STEP,
        **AS_IT_LIES,
        "num_stages": (1,),  # asynchronous copies to shared memory drop the hint `evict_first`
    },
}
"""Choices of each variant; a knob that is missing has all its choices."""


def parts() -> Iterator[Mapping[str, tuple[Value, ...]]]:
    """Yield the choices that go together: those of each variant, and fewer for warps with roles."""
    for variant, choices in VARIANTS.items():
        of_variant = {"VARIANT": (variant,), **choices}
        if variant in ("specialized", "swapped"):
            yield from parts_of_roles(of_variant, swapped=variant == "swapped")
        else:
            yield of_variant


def tile_suits(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether a tile, and its place in the order, fit the problem."""
    return suits(problem, config, limits, least=1 if config["VARIANT"] == "vectors" else 16)


def copies_can(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether factors are copied only where their copies are aligned better."""
    return not config["ALIGN"] or may_align(problem)


def offsets_fit(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether steps along K are 32-bit offsets, and their number times that of slices is one.

    M and N use 64-bit offsets.
    """
    steps = cdiv(problem["K"], config["BLOCK_K"]) * config["SPLIT_K"]
    return bool(config["BLOCK_K"] * _longest_stride(problem, config) < 2**31 and steps < 2**31)


def has_choices(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether the values of all knobs are choices of the variant."""
    return all(config[name] in choices for name, choices in VARIANTS[config["VARIANT"]].items())


def variant_can(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether the kernel of the variant can run a config."""
    return _CAN[config["VARIANT"]](problem, config, limits)


def _longest_stride(problem: Problem, config: Mapping[str, Any]) -> int:
    """Return the most elements from one index of K to the next: a row of a factor across K, and padding of its copy."""
    M, N, _ = problem.sizes
    a_is_t, b_is_t = transposed(problem)
    padding = LINE_BYTES // itemsize(problem.dtype) if config["ALIGN"] else 0
    return max(M if a_is_t else 1, 1 if b_is_t else N) + padding


def tiles_can(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether the kernel that reads through pointers can run a config."""
    # Hopper's wgmma reads its operands from shared memory, so the step in use stays there beside those in flight;
    # older instructions copy it to registers first and need one buffer less.
    buffers = config["num_stages"] - (0 if on_wgmma(config["BLOCK_M"], config["num_warps"], limits) else 1)
    return (
        (not config["ALIGN"] or (on_tensor_cores(problem) and len(aligned_first(problem, config)) > 0))
        and accumulators_fit(problem, config, limits)
        and buffers * stage_bytes(problem, config) <= limits.shared_bytes
    )


def is_described(problem: Problem, limits: Limits) -> bool:
    """Return whether the copy engine, which Hopper introduced, can read the operands as they lie."""
    return limits.capability >= (9, 0) and not unaligned(problem)


def descriptors_can(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether the copy engine can read the operands as they lie, or else their copies."""
    return limits.capability >= (9, 0) and config["ALIGN"] == bool(unaligned(problem))


def reads_elements(problem: Problem) -> bool:
    """Return whether `tiles` loads single elements of 2 bytes, no load of which is asynchronous, if none is copied."""
    return itemsize(problem.dtype) == 2 and 1 in (elements_per_access(problem, "a"), elements_per_access(problem, "b"))


def on_tensor_cores(problem: Problem) -> bool:
    """Return whether tensor cores compute the products; exact fp32 products are computed by threads."""
    return problem.dtype != "fp32" or precision(problem) == "tf32"


def persistent_can(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether the persistent kernel can run a config."""
    tile = config["BLOCK_M"] * config["BLOCK_N"]
    store_bytes = tile // config["STORES"] * itemsize(problem.dtype)
    # On Hopper, warps side by side hold columns of their own, so sums of both halves change threads in shared memory.
    side_by_side = limits.capability[0] == 9 and config["STORES"] == 2 and 16 * config["num_warps"] > config["BLOCK_M"]
    exchanged_bytes = tile // 2 * 4 if side_by_side else 0
    return (
        descriptors_can(problem, config, limits)
        and accumulators_fit(problem, config, limits)
        and on_tensor_cores(problem)
        # A tile is stored in halves to leave room for another stage.
        and (config["STORES"] == 1 or tile >= 128 * 128)
        and config["num_stages"] * stage_bytes(problem, config) + store_bytes + exchanged_bytes <= limits.shared_bytes
    )


def roles_can(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether the kernel whose warps have roles can run a config, all tiles whole or all in equal slices."""
    return descriptors_can(problem, config, limits) and whole_or_sliced_can(problem, config, limits)


def vectors_can(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether the kernel without tensor cores can run a config."""
    return precision(problem) == "ieee" and threads_can(problem, config, limits)


def streamed_can(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether the kernel whose threads load b themselves can run a config."""
    threads = config["num_warps"] * limits.warp_size
    return (
        1 < problem["M"] <= 16
        and problem["layout"] == "nt"
        and itemsize(problem.dtype) == 2
        and problem["K"] % 8 == 0
        # Ampere or newer: Gluon's products for NVIDIA begin there.
        and limits.capability >= (8, 0)
        # Each warp takes 32 or more elements of a step along K. A thread holds two steps of b, two elements for each
        # register, in half of its registers.
        and config["BLOCK_K"] >= 32 * config["num_warps"]
        and config["BLOCK_N"] * config["BLOCK_K"] <= threads * limits.registers_per_thread // 2
        and config["num_stages"] * 16 * config["BLOCK_K"] * 2 <= limits.shared_bytes
    )


def stream_k_can(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether warps with roles can share the last waves evenly."""
    return (
        descriptors_can(problem, config, limits)
        and tile_can(problem, config, limits)
        and has_steps(problem, config)
        and little_left(tile_count(problem, config), limits)
    )


_CAN = {
    "tiles": tiles_can,
    "persistent": persistent_can,
    "specialized": roles_can,
    "swapped": roles_can,
    "stream_k": stream_k_can,
    "streamed": streamed_can,
    "vectors": vectors_can,
}


def worth_slicing(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether slices along K give idle multiprocessors work that outweighs adding up their sums."""
    if config["SPLIT_K"] == 1:
        return True
    if config["VARIANT"] in WITH_ROLES:
        return slices_can(problem, config, limits)
    if not has_steps(problem, config):
        return False
    if config["VARIANT"] != "persistent":
        # More than 16 slices are for tiles so few that half as many leave multiprocessors idle.
        needed = config["SPLIT_K"] <= 16 or tile_count(problem, config) * config["SPLIT_K"] < 2 * limits.sm_count
        return needed and slices_fill(problem, config, limits)
    # One wave of slices, as full as possible, after a few waves of tiles.
    slices = sliced_tiles(problem, config, limits.sm_count) * config["SPLIT_K"]
    few = tile_count(problem, config) < 16 * limits.sm_count
    return few and fills_one_wave(slices, limits)


RULES = (tile_suits, worth_slicing, copies_can, offsets_fit, has_choices, variant_can)
"""Constraints of a config. Those that depend on the first knobs come first, which shortens the list of all configs."""


def valid(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether a config is feasible."""
    return all(rule(problem, config, limits) for rule in RULES)
