"""Matrix product of 8-bit floats: out (M, N) = a (M, K) @ b (K, N), scaled in fp32, rounded to 16 bits.

An e4m3 float has 4 bits of precision and reaches 448, so every tensor, or every block of one, comes with the number
that its elements were divided by. Beside bf16 the bytes halve and the tensor cores run twice as fast, which leaves half
the time for everything that is not a product: waiting, scaling, rounding, storing.

Two things are new, besides. Hopper's tensor cores want both operands with K contiguous: a as it lies, b as the
transpose of a contiguous matrix, which is how `torch.nn.Linear` keeps its weights. And they add 8-bit products in
fewer bits than fp32 has (14, found DeepSeek-AI, "DeepSeek-V3", section 3.3.2, 2024), so that a sum in fp32 has to leave
them from time to time, for registers that the threads add up: `accumulate` says whether it does. What may be tried
stands in `rules.scaled_space`, what runs untuned in `rules.scaled_default`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.kernels.scaled_gemm.default import default
from tuner.kernels.scaled_gemm.persistent import persistent
from tuner.kernels.scaled_gemm.reference import reference, vendor
from tuner.kernels.scaled_gemm.space import BLOCK, DESCRIBED, SIDES, VARIANTS, valid
from tuner.kernels.scaled_gemm.specialized import specialized
from tuner.kernels.scaled_gemm.tiles import tiles
from tuner.kernels.scaled_gemm.vectors import vectors
from tuner.kernels.shared.tiling import describable, flops, tile_count
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
    cdiv,
    itemsize,
)


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
            Knob("BLOCK_M", (1, 2, 4, 8, *SIDES), "rows of the output tile a program computes"),
            Knob("BLOCK_N", (1, 2, 4, 8, *SIDES), "columns of that tile"),
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
