"""Matrix product of 8-bit floats: out (M, N) = a (M, K) @ b (K, N), scaled in fp32, rounded to 16 bits.

An e4m3 float has 4 bits of precision and reaches 448, so every tensor, or every block of one, comes with the number
that its elements were divided by. Beside bf16 the bytes halve and the tensor cores run twice as fast, which leaves half
the time for everything that is not a product: waiting, scaling, rounding, storing.

Two things are new, besides. Hopper's tensor cores want both operands with K contiguous: a as it lies, b as the
transpose of a contiguous matrix, which is how `torch.nn.Linear` keeps its weights. And they add 8-bit products in
fewer bits than fp32 has (14, found DeepSeek-AI, "DeepSeek-V3", section 3.3.2, 2024), so that a sum in fp32 has to leave
them from time to time, for registers that the threads add up: `accumulate` says whether it does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as GluonDescriptor
from triton.tools.tensor_descriptor import TensorDescriptor

from tuner.errors import UsageError
from tuner.kernels.device.gemm_vectors import gemm_vectors
from tuner.kernels.device.scaled_persistent import scaled_persistent
from tuner.kernels.device.scaled_specialized import scaled_specialized
from tuner.kernels.device.scaled_tiles import scaled_tiles
from tuner.kernels.spec import (
    Attribute,
    Config,
    Dim,
    Kernel,
    Knob,
    Launch,
    Limits,
    Operand,
    Problem,
    Signature,
    Value,
    cdiv,
    itemsize,
    next_power_of_2,
)
from tuner.kernels.tiling import (
    accumulators_fit,
    by_waves,
    describable,
    flops,
    has_steps,
    reading,
    rows_walked,
    slices_fill,
    stage_bytes,
    suits,
    threads_can,
    tile_count,
)

BLOCK = 128
"""Columns of a, and rows and columns of b, that share a scale; and how many products the tensor cores add up before
fp32 takes over."""


@dataclass(frozen=True)
class Rows:
    """One factor of the product as rows along K, whose elements are neighbours, and their scales.

    `share`: how many rows have a scale together; 0 for all, and all along K.
    """

    matrix: Any
    count: int
    stride: int
    block: int
    scales: Any
    scale_strides: tuple[int, int]
    share: int

    def lies(self, K: int, block_k: int) -> tuple[Any, list[int], list[int], list[int]]:
        """What describes it to the copy engine: sizes, strides, and the block of a step."""
        return self.matrix, [self.count, K], [self.stride, 1], [self.block, block_k]


def operands(problem: Problem) -> Mapping[str, Operand]:
    """a (M, K), b (K, N) as the transpose of a contiguous matrix, their scales, out (M, N).

    Scales of blocks lie as torch's own product wants them: column by column, like b itself.
    """
    M, N, K = problem.sizes
    sizes = ((M, cdiv(K, BLOCK)), (cdiv(K, BLOCK), cdiv(N, BLOCK)))
    scale_a, scale_b = (
        Operand(size, "fp32", strides=(1, size[0]), fill=draw_scales)
        if problem["scales"] == "block"
        else Operand((1,), "fp32", fill=draw_scales)
        for size in sizes
    )
    return {
        "a": Operand((M, K), problem.dtype),
        "b": Operand((K, N), problem.dtype, strides=(1, K)),
        "scale_a": scale_a,
        "scale_b": scale_b,
        "out": Operand((M, N), problem["out_dtype"], role="out"),
    }


def draw_scales(scales: Any, generator: Any) -> object:
    """Positive, and further apart than any rounding: one taken for another shows."""
    return scales.uniform_(0.5, 2.0, generator=generator)


def workspace(problem: Problem, config: Config, limits: Limits) -> Mapping[str, Operand]:
    """The slices' sums, and how many slices of each tile have arrived; for programs that stay, a counter each.

    Warps with roles that share tiles leave at most one unfinished sum a program, and tell of it in halves.
    """
    split_k, tiles = config["SPLIT_K"], tile_count(problem, config)
    if config["VARIANT"] == "specialized" and split_k > 1:
        sums = Operand((limits.sm_count, config["BLOCK_M"], config["BLOCK_N"]), "fp32")
        return {"arrived": Operand((2 * limits.sm_count,), "int32"), "partials": sums}
    programs = config["PROGRAMS"] * limits.sm_count
    counters = programs if config["VARIANT"] in DESCRIBED else tiles if split_k > 1 else 0
    partials = Operand((tiles * split_k, config["BLOCK_M"], config["BLOCK_N"]), "fp32")
    return {
        **({"arrived": Operand((counters,), "int32")} if counters else {}),
        **({"partials": partials} if split_k > 1 else {}),
    }


def launch(problem: Problem, config: Config, tensors: Mapping[str, Any]) -> tuple[Launch, ...]:
    """Two variants need what descriptors can describe; other tensors of the same problem go through pointers."""
    M, N, _ = problem.sizes
    if M == 0 or N == 0:
        return ()
    if config["VARIANT"] == "vectors":
        return (vectors(problem, config, tensors),)
    if config["VARIANT"] == "tiles":
        return (tiles(problem, config, tensors),)
    if all(describable(tensors[name], is_t=name == "b") for name in ("a", "b", "out")):
        if config["VARIANT"] == "persistent":
            return (persistent(problem, config, tensors),)
        if problem["scales"] == "tensor" or in_columns(tensors["scale_a"]):
            return (specialized(problem, config, tensors),)
    return (tiles(problem, through_pointers(config), tensors),)


def in_columns(scales: Any) -> bool:
    """Whether the copy engine can take scales of blocks from a whole column at once, as torch wants them to lie.

    Each has to begin at a multiple of 16 bytes: from 301 rows one after the other it takes an illegal instruction.
    """
    columns = scales.stride(0) == 1 and scales.stride(1) * itemsize("fp32") % 16 == 0
    return bool(columns and scales.data_ptr() % 16 == 0)


def through_pointers(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """What replaces a config whose descriptors cannot be: the same tile; for warps with roles, one that fits eight,
    whole, since the workspace has no room for slices."""
    if config["VARIANT"] == "persistent":
        return config
    return {**config, "BLOCK_N": BLOCK, "SPLIT_K": 1, "num_warps": 8, "num_stages": 4}


def factors(problem: Problem, config: Mapping[str, Any], tensors: Mapping[str, Any]) -> tuple[Rows, Rows]:
    """a, and b by its columns; or these and a, where a has too few rows for the tensor cores.

    Theirs is the left factor's 64 rows, and out's transpose is b's times a's.
    """
    M, N, _ = problem.sizes
    a, b, scale_a, scale_b = (tensors[name] for name in ("a", "b", "scale_a", "scale_b"))
    of_a, of_b, share_a, share_b = (0, 0), (0, 0), 0, 0
    if problem["scales"] == "block":
        of_a, share_a = (scale_a.stride(0), scale_a.stride(1)), 1
        of_b, share_b = (scale_b.stride(1), scale_b.stride(0)), BLOCK
    left = Rows(a, M, a.stride(0), config["BLOCK_M"], scale_a, of_a, share_a)
    right = Rows(b, N, b.stride(1), config["BLOCK_N"], scale_b, of_b, share_b)
    return (right, left) if swapped(config) else (left, right)


def swapped(config: Mapping[str, Any]) -> bool:
    """Whether b is on the left."""
    return bool(config["BLOCK_M"] < 64 <= config["BLOCK_N"])


def compiled_in(problem: Problem, config: Mapping[str, Any], left: Rows, right: Rows) -> dict[str, Any]:
    """What both variants in Triton are compiled with."""
    leave = problem["scales"] == "tensor" and problem["accumulate"] == "fp32"
    return {
        **{name: config[name] for name in ("BLOCK_K", "SPLIT_K", "num_warps", "num_stages")},
        "BLOCK_M": left.block,
        "BLOCK_N": right.block,
        "SHARE_A": left.share,
        "SHARE_B": right.share,
        "IMPRECISE": min(BLOCK, config["BLOCK_K"]) if leave else None,
    }


def tiles(problem: Problem, config: Mapping[str, Any], tensors: Mapping[str, Any]) -> Launch:
    left, right = factors(problem, config, tensors)
    out, K = tensors["out"], problem["K"]
    pointers = (left.matrix, right.matrix, out, left.scales, right.scales)
    summing = (tensors.get("partials"), tensors.get("arrived"))
    out_strides = [out.stride(dim) for dim in ((1, 0) if swapped(config) else (0, 1))]
    strides = (left.stride, right.stride, *out_strides, *left.scale_strides, *right.scale_strides)
    return Launch(
        scaled_tiles,
        grid=(tile_count(problem, config) * config["SPLIT_K"],),
        args=(*pointers, *summing, left.count, right.count, K, *strides, config["GROUP_M"]),
        kwargs=compiled_in(problem, config, left, right) | {"WHOLE_K": K % config["BLOCK_K"] == 0},
    )


def vectors(problem: Problem, config: Mapping[str, Any], tensors: Mapping[str, Any]) -> Launch:
    """By gemm's kernel: both factors lie along K, and a thread loads 16 elements of the wider one at once."""
    M, N, K = problem.sizes
    a, b, out, scale_a, scale_b = (tensors[name] for name in ("a", "b", "out", "scale_a", "scale_b"))
    strides = [tensor.stride(dim) for tensor in (a, b, out) for dim in (0, 1)]
    return Launch(
        gemm_vectors,
        grid=(tile_count(problem, config),),
        args=(a, b, out, None, scale_a, scale_b, M, N, K, *strides),
        kwargs={name: config[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages")}
        | {"WHOLE_K": K % config["BLOCK_K"] == 0, "RUN": 16}
        | {"THREADS": min(32 * config["num_warps"], config["BLOCK_K"] // 16), "ACTIVATION": "none"}
        | reading(problem, config),
    )


def persistent(problem: Problem, config: Mapping[str, Any], tensors: Mapping[str, Any]) -> Launch:
    left, right = factors(problem, config, tensors)
    out, K, block_k = tensors["out"], problem["K"], config["BLOCK_K"]
    described = (
        TensorDescriptor(*left.lies(K, block_k)),
        TensorDescriptor(*right.lies(K, block_k)),
        TensorDescriptor(out, list(out.shape), [out.stride(0), 1], [config["BLOCK_M"], config["BLOCK_N"]]),
    )
    summing = (left.scales, right.scales, tensors.get("partials"), tensors["arrived"])
    slots = tile_count(problem, config) * config["SPLIT_K"]
    strides = (*left.scale_strides, *right.scale_strides)
    return Launch(
        scaled_persistent,
        grid=(min(tensors["arrived"].shape[0], slots),),
        args=(*described, *summing, left.count, right.count, K, *strides, slots, config["GROUP_M"]),
        kwargs=compiled_in(problem, config, left, right) | {"SWAPPED": swapped(config)},
    )


def specialized(problem: Problem, config: Mapping[str, Any], tensors: Mapping[str, Any]) -> Launch:
    a, b = factors(problem, config, tensors)
    out, K, block_k = tensors["out"], problem["K"], config["BLOCK_K"]
    described = (
        in_gluon(gl.float8e4nv, *a.lies(K, block_k)),
        in_gluon(gl.float8e4nv, *b.lies(K, block_k)),
        in_gluon(_GLUON[problem["out_dtype"]], out, list(out.shape), [out.stride(0), 1], [a.block // 2, BLOCK]),
    )
    of_blocks, scale_a = problem["scales"] == "block", a.scales
    if of_blocks:
        numbers = (cdiv(K, BLOCK) - 1) * a.scale_strides[1] + a.count
        scale_a = in_gluon(gl.float32, a.scales, [numbers], [1], [a.block])
    strides = (a.scale_strides[1], *b.scale_strides)
    summing = (scale_a, b.scales, tensors.get("partials"), tensors["arrived"])
    tiles, shared = tile_count(problem, config), config["SPLIT_K"] > 1
    programs = tensors["arrived"].shape[0] // (2 if shared else 1)
    return Launch(
        scaled_specialized,
        grid=(min(programs, tiles * config["SPLIT_K"]),),
        args=(*described, *summing, a.count, b.count, K, *strides, tiles if shared else 0, config["GROUP_M"]),
        kwargs={name: config[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps")}
        | {"STAGES": config["num_stages"], "SHARED": shared, "OF_BLOCKS": of_blocks},
    )


def in_gluon(dtype: Any, matrix: Any, shape: list[int], strides: list[int], block: list[int]) -> GluonDescriptor:
    return GluonDescriptor(matrix, shape, strides, block, gl.NVMMASharedLayout.get_default_for(block, dtype))


_GLUON = {"bf16": gl.bfloat16, "fp16": gl.float16}


def reference(problem: Problem, tensors: Mapping[str, Any], rows: slice) -> Mapping[str, Any]:
    """In fp32, where products of 8-bit floats are exact."""
    _, N, K = problem.sizes
    a, b = tensors["a"][rows].float(), tensors["b"].float()
    scale_a, scale_b = tensors["scale_a"], tensors["scale_b"]
    if problem["scales"] == "tensor":
        return {"out": (a @ b) * (scale_a * scale_b)}
    a *= scale_a[rows].repeat_interleave(BLOCK, 1)[:, :K]
    b *= scale_b.repeat_interleave(BLOCK, 0)[:K].repeat_interleave(BLOCK, 1)[:, :N]
    return {"out": a @ b}


def vendor(problem: Problem, tensors: Mapping[str, Any]) -> object:
    """`torch._scaled_mm`, which is cuBLAS; where it refuses, the product of what the 8-bit floats stand for."""
    import torch

    out = tensors["out"]
    if not vendor_can(problem, out):
        return out.copy_(reference(problem, tensors, slice(None))["out"])
    fast = problem["scales"] == "tensor" and problem["accumulate"] == "fast"
    given = {name: tensors[name] for name in ("scale_a", "scale_b", "out")}
    return torch._scaled_mm(tensors["a"], tensors["b"], out_dtype=out.dtype, use_fast_accum=fast, **given)


def vendor_can(problem: Problem, out: Any) -> bool:
    """What torch takes; of blocks, what cuBLAS multiplies.

    With scales of blocks torch 2.11 passes on what cuBLAS 13.0 refuses (M = 1 to 3, 17, 130; it takes 16 and 128) or
    multiplies wrongly (K = 528, whose scales are not padded to four along K; H200, 2026-11-28).
    """
    import torch

    M, N, K = problem.sizes
    if N % 16 or K % 16 or not out.is_cuda:
        return False
    if problem["scales"] == "tensor":
        return True
    cuda = tuple(map(int, (torch.version.cuda or "0.0").split(".")))
    hopper = torch.cuda.get_device_capability(out.device)[0] == 9
    return cuda >= (12, 9) and hopper and M % 16 == 0 and K % (4 * BLOCK) == 0


DESCRIBED = ("persistent", "specialized")
"""The variants that go through descriptors, by programs that stay."""

_SIDES = (16, 32, 64, 128, 256)

VARIANTS: Mapping[str, Mapping[str, tuple[Value, ...]]] = {
    "tiles": {
        "BLOCK_M": _SIDES,
        "BLOCK_N": _SIDES,
        "BLOCK_K": (64, 128, 256),
        "PROGRAMS": (1,),
        "num_stages": (2, 3, 4, 5, 6),
    },
    "persistent": {
        "BLOCK_M": _SIDES,
        "BLOCK_N": _SIDES,
        "BLOCK_K": (128, 256),
        "num_warps": (4, 8),  # more only divide their work
        "num_stages": (3, 4, 5, 6),  # with two the copy engine waits for the tensor cores
    },
    "specialized": {
        "BLOCK_M": (128,),  # two groups of 64 rows
        "BLOCK_N": (128, 256),
        "BLOCK_K": (128,),
        "SPLIT_K": (1, 2),
        "PROGRAMS": (1,),
        "num_warps": (4,),
        "num_stages": (3, 4, 5, 6),
    },
    "vectors": {
        "BLOCK_M": (1, 2, 4, 8),
        "BLOCK_N": (1, 2, 4, 8),
        "BLOCK_K": (512, 1024, 2048, 4096, 8192),
        "GROUP_M": (1,),
        "SPLIT_K": (1,),
        "PROGRAMS": (1,),
        "num_stages": (1,),
    },
}
"""The choices that each variant has a use for."""


def valid(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    return (
        # Tensor cores multiply e4m3 from Ada on; before, no instruction even converts it.
        limits.capability >= (8, 9)
        and suits(problem, config, limits, least=1 if config["VARIANT"] == "vectors" else 16)
        # A step along K has one scale of each block.
        and (problem["scales"] == "tensor" or config["BLOCK_K"] <= BLOCK)
        and _CAN[config["VARIANT"]](problem, config, limits)
        and (config["SPLIT_K"] == 1 or worth_slicing(problem, config, limits))
        and all(config[name] in choices for name, choices in VARIANTS[config["VARIANT"]].items())
    )


def tiles_can(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """What is asked of the kernel that goes through pointers."""
    # wgmma reads shared memory, so the step in use stays there; older instructions copy it to registers first.
    buffers = config["num_stages"] - (0 if wgmma(config, limits) else 1)
    return sums_fit(problem, config, limits) and buffers * stage_bytes(problem, config) <= limits.shared_bytes


def wgmma(config: Mapping[str, Any], limits: Limits) -> bool:
    """Whether Hopper's own instruction does it: four warps, and 64 rows on the left."""
    return limits.capability[0] == 9 and max(config["BLOCK_M"], config["BLOCK_N"]) >= 64 and config["num_warps"] >= 4


def sums_fit(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """As in gemm, of more sums."""
    return accumulators_fit(problem, config, limits, sums_held(problem, config, limits))


def sums_held(problem: Problem, config: Mapping[str, Any], limits: Limits) -> int:
    """fp32 sums in registers at once: a tile's, and those that are still being added up by the tensor cores."""
    tile = config["BLOCK_M"] * config["BLOCK_N"]
    if problem["scales"] == "block":
        return 2 * tile
    if problem["accumulate"] == "fast" or not wgmma(config, limits):
        return tile
    columns = config["BLOCK_M"] if swapped(config) else config["BLOCK_N"]
    return tile + min(tile, config["num_warps"] * 16 * columns)


def descriptors_can(problem: Problem, limits: Limits) -> bool:
    """The copy engine came with Hopper, and wants every row aligned to 16 bytes."""
    _, N, K = problem.sizes
    rows = K * itemsize(problem.dtype), N * itemsize(problem["out_dtype"])
    return limits.capability >= (9, 0) and all(row % 16 == 0 for row in rows)


def persistent_can(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """What is asked of the persistent kernel."""
    tile, programs = config["BLOCK_M"] * config["BLOCK_N"], config["PROGRAMS"]
    shared = config["num_stages"] * stage_bytes(problem, config) + tile * itemsize(problem["out_dtype"])
    registers = sums_held(problem, config, limits) + 48 * config["num_warps"] * limits.warp_size
    return (
        descriptors_can(problem, limits)
        and sums_fit(problem, config, limits)
        # Two programs overlap one's waiting with the other's products, if they fit: each takes 1 KB for the system,
        # and some 48 registers a thread beside its sums.
        and programs * (shared + 1024) <= limits.shared_bytes + 1024
        and (programs == 1 or programs * registers <= limits.registers_per_sm)
    )


def roles_can(problem: Problem, limits: Limits) -> bool:
    """Whether warps with roles have a use: wgmma is Hopper's alone, and busy all the time with sums that stay there. Of
    blocks, the scales of a come in columns of M, each aligned to 16 bytes."""
    return (
        descriptors_can(problem, limits)
        and limits.capability[0] == 9
        and (problem["accumulate"] == "fp32" if problem["scales"] == "tensor" else problem["M"] % 4 == 0)
    )


def specialized_can(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """What is asked of a tile of the kernel whose warps have roles."""
    step_bytes = stage_bytes(problem, config)
    if problem["scales"] == "block":
        step_bytes += config["BLOCK_M"] * itemsize("fp32")
    store_bytes = config["BLOCK_M"] * BLOCK * itemsize(problem["out_dtype"])
    return (
        roles_can(problem, limits)
        # Of blocks, two products a step take turns with their sums: 4096^3 takes 196 us so, and 118 (H200, 2026-11-28).
        and (problem["scales"] == "tensor" or config["BLOCK_N"] == BLOCK)
        and config["num_stages"] * step_bytes + store_bytes + 1024 <= limits.shared_bytes
    )


_CAN = {
    "tiles": tiles_can,
    "persistent": persistent_can,
    "specialized": specialized_can,
    "vectors": threads_can,
}


def worth_slicing(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Whether slices along K give idle multiprocessors work that outweighs adding up their sums."""
    return has_steps(problem, config) and slices_fill(problem, config, limits)


_TILES = {
    "fast": {(128, 256): 1.0, (128, 128): 0.98, (64, 256): 0.95, (256, 128): 0.93, (64, 128): 0.87, (128, 64): 0.76},
    "fp32": {(256, 128): 1.0, (128, 128): 0.99, (64, 128): 0.91, (64, 256): 0.85, (128, 64): 0.82},
    "block": {(64, 128): 1.0, (128, 64): 0.93, (128, 128): 0.9},
}
"""How fast the tensor cores are with a tile, over the fastest, by what becomes of its sums: the best of each among some
100 configs at 4096^3 (H200, 2026-11-28), none with roles for its warps."""
_WITH_ROLES = {"fp32": {(128, 256): 1.0, (128, 128): 0.99}, "block": {(128, 128): 1.0}}
_WITHOUT = {"fp32": 0.78, "block": 0.68}
"""The same with roles, and the fastest tile without over the fastest with them: 4096^3 takes 101 us and 130, in blocks
112 and 166, 1024 x 6144 x 4096 in blocks 45 and 67 (H200, 2026-11-28)."""
_JOINING_WITH_ROLES = 1e7
"""As `JOINING` in kernels/tiling.py, where each thread leaves and reads its sums in the order in which it holds them:
256 x 4096 x 14336 takes 34 us in two slices and 46 in one, 256 x 4096 x 4096 17.9 and 18.8, in blocks 18.4 and 20.7
(H200, 2026-11-28)."""


def default(problem: Problem, limits: Limits) -> Mapping[str, Value]:
    """Of the tiles, whole or in two slices, the one whose waves over the multiprocessors take least.

    Few rows: narrow tiles in slices along K, until every multiprocessor has one, for the bytes of b take the time.

    Raises:
        UsageError: the card multiplies no 8-bit floats.
    """
    M, N, _ = problem.sizes
    if limits.capability < (8, 9):
        raise UsageError(
            "scaled_gemm multiplies 8-bit floats on cards of compute capability 8.9 and up, and this one has "
            f"{'.'.join(map(str, limits.capability))}; take gemm on 16-bit ones"
        )
    if min(M, N) < 64:
        return by_vectors(problem, limits) or few_rows(problem, limits)
    sums = "block" if problem["scales"] == "block" else problem["accumulate"]
    with_roles = _WITH_ROLES.get(sums, {}) if roles_can(problem, limits) else {}
    others = _WITHOUT[sums] if with_roles else 1.0
    speeds = {tile: others * speed for tile, speed in _TILES[sums].items()} | with_roles
    joining = dict.fromkeys(with_roles, _JOINING_WITH_ROLES)
    for block_m, block_n, slices, _ in by_waves(problem, speeds, limits, joining=joining):
        config: dict[str, Value] = {"BLOCK_M": block_m, "BLOCK_N": block_n, "SPLIT_K": slices}
        for found in filled(problem, config, limits):
            return found
    return few_rows(problem, limits)


def by_vectors(problem: Problem, limits: Limits) -> Mapping[str, Value] | None:
    """The default of a matrix times one vector or two; None where it is too small, or blocks have scales.

    1 x 28672 x 4096 takes 35.6 us so and 45.6 in slices of tiles, 1 x 4096 x 14336 21.9 and 26.3, 2 x 4096 x 4096 12.2
    and 13.1, 2 x 28672 x 4096 41.7 and 45.4. Four take 59.7 and 45.3 (H200, 2026-11-29).
    """
    vectors = next_power_of_2(min(problem["M"], problem["N"]))
    many, depth = (2, 1024) if vectors == 2 else (2, 4096) if problem["K"] % 4096 == 0 else (1, 2048)
    few, wide = ("BLOCK_M", "BLOCK_N") if problem["M"] <= problem["N"] else ("BLOCK_N", "BLOCK_M")
    config: dict[str, Value] = {
        few: vectors,
        wide: many,
        "BLOCK_K": depth,
        "GROUP_M": 1,
        "VARIANT": "vectors",
        "SPLIT_K": 1,
        "PROGRAMS": 1,
        "num_warps": 2,
        "num_stages": 1,
    }
    return config if vectors <= 2 and problem["K"] >= depth and valid(problem, config, limits) else None


def few_rows(problem: Problem, limits: Limits) -> Mapping[str, Value]:
    """The default where a tile has fewer than 64 rows or columns: programs share a multiprocessor, so none stays."""
    M, N, _ = problem.sizes
    config: dict[str, Value] = {
        "BLOCK_M": min(64, max(16, next_power_of_2(M))),
        "BLOCK_N": min(64, max(16, next_power_of_2(N))),
        "VARIANT": "tiles",
    }
    most = max(1, round(2 * limits.sm_count / tile_count(problem, config)))
    return next(
        found
        for split_k in (16, 8, 4, 2, 1)
        if split_k <= most
        for found in filled(problem, {**config, "SPLIT_K": split_k}, limits)
    )


def filled(problem: Problem, config: Mapping[str, Value], limits: Limits) -> Iterator[Mapping[str, Value]]:
    """A tile with its order, a variant, the warps that its sums want, and the most stages that fit.

    Sums of blocks wait for their scales, too: programs that share a multiprocessor fill each other's gaps.
    """
    group_m = rows_walked(problem, int(config["BLOCK_M"]))
    few = sums_held(problem, {**config, "num_warps": 4}, limits) <= 128 * 128
    plain = ("tiles", "persistent") if problem["scales"] == "block" else ("persistent", "tiles")
    variants = ("specialized", *plain)
    for variant, block_k, warps, stages in product(variants, (128, 64), (4, 8, 2) if few else (8, 4), (6, 5, 4, 3, 2)):
        more: dict[str, Value] = {"BLOCK_K": block_k, "num_warps": warps, "num_stages": stages}
        full = {"VARIANT": variant, **config, "GROUP_M": group_m, "PROGRAMS": 1, **more}
        shared = stages * stage_bytes(problem, full)
        if (variant in DESCRIBED or 2 * shared <= limits.shared_bytes) and valid(problem, full, limits):
            yield full


KERNEL = Kernel(
    signature=Signature(
        op="scaled_gemm",
        summary="product of 8-bit floats out (M, N) = a (M, K) @ b (K, N), with scales of tensors or of blocks",
        dims=(
            Dim("M", help="rows of a and out"),
            Dim("N", default="M", help="columns of b and out"),
            Dim("K", default="M", help="columns of a, rows of b"),
        ),
        dtypes=("fp8e4m3",),
        attributes=(
            Attribute("scales", ("tensor", "block"), "tensor", help="one each, or of 1 x 128 of a and 128 x 128 of b"),
            Attribute(
                "accumulate", ("fp32", "fast"), "fp32", help="fast: sums stay in the tensor cores; not of blocks"
            ),
            Attribute("out_dtype", ("bf16", "fp16"), "bf16", help="dtype of out"),
        ),
        knobs=(
            Knob("BLOCK_M", (1, 2, 4, 8, *_SIDES), "rows of the output tile a program computes"),
            Knob("BLOCK_N", (1, 2, 4, 8, *_SIDES), "columns of that tile"),
            Knob("BLOCK_K", (64, 128, 256, 512, 1024, 2048, 4096, 8192), "depth of one step of the loop over K"),
            Knob("GROUP_M", (1, 2, 4, 8, 16), "rows of tiles walked together, for reuse in L2; not compiled in"),
            Knob(
                "VARIANT",
                tuple(VARIANTS),
                "a program a tile; programs that stay (Hopper on), their warps with roles or not; no tensor cores",
                "tiles",
            ),
            Knob(
                "SPLIT_K", (1, 2, 4, 8, 16), "slices along K; of warps with roles, even shares of all tiles' steps", 1
            ),
            Knob("PROGRAMS", (1, 2), "programs that stay on a multiprocessor", 1),
            Knob("num_warps", (2, 4, 8), "warps that share a tile and its sums"),
            Knob("num_stages", (1, 2, 3, 4, 5, 6), "steps of the loop in flight between device and shared memory"),
        ),
    ),
    operands=operands,
    launch=launch,
    workspace=workspace,
    reference=reference,
    vendor=vendor,
    valid=valid,
    parts=tuple({"VARIANT": (variant,), **choices} for variant, choices in VARIANTS.items()),
    default=default,
    flops=flops,
)
