"""Matrix product: out (M, N) = act(a (M, K) @ b (K, N) + bias (N,)), accumulated in fp32.

The product does 2 M N K operations on M K + K N + M N elements, so for large sizes the tensor cores are the limit and
memory is not. Computed element by element, each output would read 2 K elements, 2 M N K in all. A program that computes
a BLOCK_M x BLOCK_N tile reads (BLOCK_M + BLOCK_N) K elements for BLOCK_M BLOCK_N outputs: larger tiles read less, until
the accumulators no longer fit the registers, or there are fewer tiles than multiprocessors. The variants differ in how
they hide the latency of those reads. `space` states the feasible configs, `default` the config that runs untuned.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.kernels.gemm.default import default
from tuner.kernels.gemm.draw import draw
from tuner.kernels.gemm.estimate import estimate
from tuner.kernels.gemm.persistent import persistent
from tuner.kernels.gemm.reference import reference, rounding, vendor
from tuner.kernels.gemm.space import DESCRIBED, RULES, VARIANTS, WITH_ROLES, parts, sliced_tiles
from tuner.kernels.gemm.specialized import specialized
from tuner.kernels.gemm.streamed import streamed
from tuner.kernels.gemm.tiles import tiles
from tuner.kernels.gemm.vectors import vectors
from tuner.kernels.shared.aligned_products import aligned_workspace, with_aligned_rows
from tuner.kernels.shared.product_rows import LONGEST_ROW, transposed
from tuner.kernels.shared.roles import SIDES
from tuner.kernels.shared.tiling import describable, flops
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
    next_power_of_2,
)


def operands(problem: Problem) -> Mapping[str, Operand]:
    """Return a (M, K), b (K, N), bias (N,) and out (M, N).

    A `t` in the layout means that the input is the transpose of a contiguous matrix.
    """
    M, N, K = problem.sizes
    a_is_t, b_is_t = transposed(problem)
    inputs = {
        "a": Operand((M, K), problem.dtype, strides=(1, M) if a_is_t else (K, 1)),
        "b": Operand((K, N), problem.dtype, strides=(1, K) if b_is_t else (N, 1)),
    }
    bias = {"bias": Operand((N,), problem.dtype)} if problem["bias"] else {}
    return {**inputs, **bias, "out": Operand((M, N), problem.dtype, role="out")}


def workspace(problem: Problem, config: Config, limits: Limits) -> Mapping[str, Operand]:
    """Return the partial sums of slices, and counters: of arrived slices for each tile, or one for each program.

    Each group of warps with roles counts its own slices. With ALIGN, also the copies of operands.
    """
    sliced = sliced_tiles(problem, config, limits.sm_count)
    counters = limits.sm_count if config["VARIANT"] in DESCRIBED else sliced
    if config["VARIANT"] in WITH_ROLES and sliced:
        counters = sliced * config["GROUPS"]
    sums = sliced * config["SPLIT_K"]
    if config["VARIANT"] == "stream_k":  # at most one unfinished tile of each program, signalled in halves
        counters, sums = 2 * limits.sm_count, limits.sm_count
    partials = Operand((sums, config["BLOCK_M"], config["BLOCK_N"]), "fp32")
    return {
        **({"arrived": Operand((counters,), "int32")} if counters else {}),
        **({"partials": partials} if sums else {}),
        **aligned_workspace(problem, config),
    }


def launch(problem: Problem, config: Config, tensors: Mapping[str, Any]) -> tuple[Launch, ...]:
    """Return the launch of a variant, between copies if operands are aligned first.

    `tiles` runs on tensors that descriptors cannot describe: they need rows without gaps, aligned to 16 bytes.
    """
    M, N, _ = problem.sizes
    if M == 0 or N == 0:
        return ()
    if config["VARIANT"] == "vectors":
        return (vectors(problem, config, tensors),)
    before, given, after = with_aligned_rows(problem, config, tensors)
    if config["VARIANT"] == "tiles":
        return (*before, tiles(problem, config, given))
    a_is_t, b_is_t = transposed(problem)
    if describable(given["a"], a_is_t) and describable(given["b"], b_is_t):
        if config["VARIANT"] == "streamed":
            return (streamed(problem, config, given),)
        if describable(given["out"]):
            product = (persistent if config["VARIANT"] == "persistent" else specialized)(problem, config, given)
            return (*before, product, *after)
    return (tiles(problem, through_pointers(config), tensors),)


def through_pointers(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the config of `tiles` that replaces one that needs descriptors.

    It has the same tile without slices, which the workspace has no room for; instead of warps with roles, a tile of
    powers of two that fits four warps.
    """
    if config["VARIANT"] == "persistent":
        return {**config, "SPLIT_K": 1}
    if config["VARIANT"] == "streamed":
        return {**config, "BLOCK_N": 64, "BLOCK_K": 64, "num_stages": 4}
    tile = {name: min(128, max(16, next_power_of_2(config[name]))) for name in ("BLOCK_M", "BLOCK_N")}
    return {**config, **tile, "GROUP_M": 8, "BLOCK_K": 64, "SPLIT_K": 1, "num_stages": 4}


KERNEL = Kernel(
    signature=Signature(
        op="gemm",
        summary="matrix product out (M, N) = a (M, K) @ b (K, N), with optional bias and activation",
        dims=(
            Dim("M", help="rows of a and out", ranges=(16, 96, 1200)),
            Dim("N", default="M", help="columns of b and out"),
            Dim("K", default="M", help="columns of a, rows of b"),
        ),
        dtypes=("bf16", "fp16", "fp32"),
        size_limits=(
            *(SizeLimit(dim, 2**31 - 4096) for dim in ("M", "N", "K")),  # the deepest step
            # The shortest step along K, of 32, crosses whole rows of what does not lie along K, in 32 bits.
            SizeLimit("M", LONGEST_ROW, "layout", ("tn", "tt")),
            SizeLimit("N", LONGEST_ROW, "layout", ("nn", "tn")),
        ),
        attributes=(
            Attribute("layout", ("nn", "nt", "tn", "tt"), "nn", help="which of a, b is a transposed view (t)"),
            Attribute("bias", (False, True), False, help="whether bias (N,) is added to each row"),
            Attribute("activation", ("none", "silu", "gelu"), "none", help="function of each sum"),
            Attribute("precision", ("ieee", "tf32"), "ieee", help="how fp32 products are computed", dtypes=("fp32",)),
        ),
        knobs=(
            Knob("BLOCK_M", (1, 2, 4, *SIDES), "rows of the output tile a program computes"),
            Knob("BLOCK_N", (1, 2, 4, *SIDES), "columns of that tile"),
            Knob("BLOCK_K", (32, 64, 128, 256, 512, 1024, 2048, 4096), "depth of one step of the loop over K"),
            Knob("GROUP_M", (1, 2, 4, 8, 16), "rows of tiles walked together, for reuse in L2 (with roles: a rule's)"),
            Knob(
                "VARIANT",
                tuple(VARIANTS),
                "tiles: a program for each tile; persistent: one for each multiprocessor (Hopper on); specialized: "
                "with roles for warps; swapped: and b as the left factor; stream_k: and last waves shared evenly; "
                "streamed: b loaded to registers; vectors: no tensor cores",
                "tiles",
            ),
            Knob(
                "SPLIT_K",
                (1, 2, 3, 4, 6, 8, 16, 32, 64),
                "slices along K of all tiles, or of a last wave (persistent)",
                1,
            ),
            Knob("STORES", (1, 2, 4), "pieces in which a persistent program stores a tile", 1),
            Knob("GROUPS", (1, 2, 3), "groups of four warps that multiply, of warps with roles", 2),
            Knob(
                "PINGPONG",
                (False, True),
                "two groups multiply tiles in turn: one stores, one multiplies (roles)",
                False,
            ),
            Knob("WIDE", (False, True), "one wgmma for all columns of a tile (roles; Triton 3.6, 3.7)", False),
            Knob(
                "ALIGN",
                (False, True),
                "whether operands whose rows are not aligned to 16 bytes are copied first",
                False,
            ),
            Knob("num_warps", (2, 4, 8, 16), "warps that share a tile and its accumulators"),
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
