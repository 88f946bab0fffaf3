"""Matrix product of 8-bit floats: out (M, N) = a (M, K) @ b (K, N), scaled in fp32, rounded to 16 bits.

An e4m3 float has 4 bits of precision and reaches 448, so each tensor, or each block of it, comes with the number by
which its elements were divided. The product reads M K + K N bytes, half of bf16's, and tensor cores run twice as fast,
which leaves half the time for waiting, scaling, rounding and storing.

Hopper's tensor cores take both operands with K contiguous: a as it lies, and b as the transpose of a contiguous matrix,
which is how `torch.nn.Linear` keeps its weights. They add 8-bit products in fewer bits than fp32 has (14 according to
DeepSeek-AI, "DeepSeek-V3", section 3.3.2, 2024), so a sum in fp32 moves to registers from time to time; `accumulate`
says whether it does. `space` states the feasible configs, `default` the config that runs untuned.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.kernels.scaled_gemm.default import default
from tuner.kernels.scaled_gemm.draw import draw
from tuner.kernels.scaled_gemm.estimate import estimate
from tuner.kernels.scaled_gemm.persistent import persistent
from tuner.kernels.scaled_gemm.reference import reference, rounding, vendor
from tuner.kernels.scaled_gemm.space import (
    BLOCK,
    DESCRIBED,
    RULES,
    VARIANTS,
    WITH_ROLES,
    may_copy_scales,
    parts,
    shares_evenly,
)
from tuner.kernels.scaled_gemm.specialized import specialized
from tuner.kernels.scaled_gemm.tiles import tiles
from tuner.kernels.scaled_gemm.vectors import vectors
from tuner.kernels.shared.aligned_products import aligned_workspace, with_aligned_rows
from tuner.kernels.shared.aligned_rows import aligned_operand, copied
from tuner.kernels.shared.roles import SIDES
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
    SizeLimit,
    cdiv,
    itemsize,
    next_power_of_2,
)


def operands(problem: Problem) -> Mapping[str, Operand]:
    """Return a (M, K), b (K, N) as the transpose of a contiguous matrix, their scales, and out (M, N).

    Scales of blocks lie column by column, like b, which is how torch's own product takes them.
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
    """Fill scales with numbers further apart than any rounding, so that a wrong scale is a wrong result."""
    return scales.uniform_(0.5, 2.0, generator=generator)


def workspace(problem: Problem, config: Config, limits: Limits) -> Mapping[str, Operand]:
    """Return the partial sums of slices, and counters: of arrived slices for each tile, or one for each program.

    Each group of warps with roles counts its own slices. If tiles are shared evenly, each program leaves at most one
    unfinished sum, which each group signals. With ALIGN, also the copies of operands.
    """
    split_k, tiles, programs = config["SPLIT_K"], tile_count(problem, config), config["PROGRAMS"] * limits.sm_count
    counters = programs if config["VARIANT"] in DESCRIBED else tiles if split_k > 1 else 0
    sums = tiles * split_k if split_k > 1 else 0
    if shares_evenly(config):
        counters, sums = config["GROUPS"] * limits.sm_count, limits.sm_count
    elif config["VARIANT"] in WITH_ROLES and split_k > 1:
        counters = config["GROUPS"] * tiles
    partials = Operand((sums, config["BLOCK_M"], config["BLOCK_N"]), "fp32")
    return {
        **({"arrived": Operand((counters,), "int32")} if counters else {}),
        **({"partials": partials} if sums else {}),
        **aligned_workspace(problem, config),
        **(
            {"aligned_scale_a": aligned_operand(*by_columns(problem), "fp32", True)}
            if may_copy_scales(problem, config)
            else {}
        ),
    }


def launch(problem: Problem, config: Config, tensors: Mapping[str, Any]) -> tuple[Launch, ...]:
    """Return the launch of a variant, between copies if operands are aligned first.

    `tiles` runs on tensors that descriptors cannot describe.
    """
    M, N, _ = problem.sizes
    if M == 0 or N == 0:
        return ()
    if config["VARIANT"] == "vectors":
        return (vectors(problem, config, tensors),)
    before, given, after = with_aligned_rows(problem, config, tensors)
    if config["VARIANT"] == "tiles":
        return (*before, tiles(problem, config, given))
    if all(describable(given[name], is_t=name == "b") for name in ("a", "b", "out")):
        if config["VARIANT"] == "persistent":
            return (*before, persistent(problem, config, given), *after)
        if "aligned_scale_a" in tensors and not in_columns(tensors["scale_a"]):
            given = {**given, "scale_a": tensors["aligned_scale_a"]}
            before = (*before, copied([(tensors["scale_a"], given["scale_a"], True)]))
        if problem["scales"] == "tensor" or in_columns(given["scale_a"]):
            return (*before, specialized(problem, config, given), *after)
    return (tiles(problem, through_pointers(config), tensors),)


def by_columns(problem: Problem) -> tuple[int, int]:
    """Return the columns of scales of a's blocks, and the numbers of each."""
    return cdiv(problem["K"], BLOCK), problem["M"]


def in_columns(scales: Any) -> bool:
    """Return whether the copy engine can read scales of blocks by columns, as torch takes them.

    Each column begins at a multiple of 16 bytes; the copy engine fails with an illegal instruction otherwise.
    """
    columns = scales.stride(0) == 1 and scales.stride(1) * itemsize("fp32") % 16 == 0
    return bool(columns and scales.data_ptr() % 16 == 0)


def through_pointers(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the config of `tiles` that replaces one that needs descriptors.

    It has the same tile; instead of warps with roles, a whole tile of powers of two that fits eight warps, since the
    workspace has no room for slices.
    """
    if config["VARIANT"] == "persistent":
        return config
    tile = {name: min(BLOCK, max(16, next_power_of_2(config[name]))) for name in ("BLOCK_M", "BLOCK_N")}
    return {**config, **tile, "SPLIT_K": 1, "num_warps": 8, "num_stages": 4}


KERNEL = Kernel(
    signature=Signature(
        op="scaled_gemm",
        summary="product of 8-bit floats out (M, N) = a (M, K) @ b (K, N), with scales of tensors or of blocks",
        dims=(
            Dim("M", help="rows of a and out", ranges=(16, 96, 1200)),
            Dim("N", default="M", help="columns of b and out"),
            Dim("K", default="M", help="columns of a, rows of b"),
        ),
        dtypes=("fp8e4m3",),
        size_limits=tuple(SizeLimit(dim, 2**31 - 8192) for dim in ("M", "N", "K")),  # the deepest step
        attributes=(
            Attribute(
                "scales",
                ("tensor", "block"),
                "tensor",
                help="one of each factor, or of blocks of 1 x 128 of a and 128 x 128 of b",
            ),
            Attribute(
                "accumulate", ("fp32", "fast"), "fp32", help="fast: sums stay in the tensor cores; not with block"
            ),
            Attribute("out_dtype", ("bf16", "fp16"), "bf16", help="dtype of out"),
        ),
        knobs=(
            Knob("BLOCK_M", (1, 2, 4, *SIDES), "rows of the output tile a program computes"),
            Knob("BLOCK_N", (1, 2, 4, *SIDES), "columns of that tile"),
            Knob("BLOCK_K", (64, 128, 256, 512, 1024, 2048, 4096, 8192), "depth of one step of the loop over K"),
            Knob("GROUP_M", (1, 2, 4, 8, 16), "rows of tiles walked together, for reuse in L2 (with roles: a rule's)"),
            Knob(
                "VARIANT",
                tuple(VARIANTS),
                "tiles: a program for each tile; persistent: programs that stay (Hopper on); specialized: with roles "
                "for warps; swapped: and b as the left factor; vectors: no tensor cores",
                "tiles",
            ),
            Knob(
                "SPLIT_K",
                (1, 2, 3, 4, 6, 8, 16),
                "slices along K; two, with roles: even shares of all tiles' steps",
                1,
            ),
            Knob("PROGRAMS", (1, 2), "programs that stay on a multiprocessor", 1),
            Knob("GROUPS", (1, 2, 3), "groups of four warps that multiply, of warps with roles", 2),
            Knob("WIDE", (False, True), "one wgmma for all columns of a tile (roles; Triton 3.6, 3.7)", False),
            Knob(
                "ALIGN",
                (False, True),
                "whether operands whose rows (of scales: columns) are not aligned to 16 bytes are copied first",
                False,
            ),
            Knob("num_warps", (2, 4, 8), "warps that share a tile and its sums"),
            Knob("num_stages", (1, 2, 3, 4, 5, 6, 14), "steps of the loop in flight; 14, with roles: as many as fit"),
        ),
    ),
    operands=operands,
    launch=launch,
    workspace=workspace,
    reference=reference,
    vendor=vendor,
    valid=RULES,
    parts=tuple(parts()),
    default=default,
    draw=draw,
    estimate=estimate,
    flops=flops,
    rounding=rounding,
)
