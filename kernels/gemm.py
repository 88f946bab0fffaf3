"""Matrix product: out (M, N) = act(a (M, K) @ b (K, N) + bias (N,)), accumulated in fp32.

A GEMM does 2 M N K operations on M K + K N + M N elements, so for large sizes the tensor cores should be the
limit and memory should not. A program that computes a BLOCK_M x BLOCK_N tile of the output reads
(BLOCK_M + BLOCK_N) K elements to do 2 BLOCK_M BLOCK_N K operations: larger tiles read less, until the accumulators
no longer fit the registers, or until there are fewer tiles than multiprocessors. Everything else is about hiding
the latency of those reads. What may be tried stands in `rules.gemm_space`, what runs untuned in `rules.gemm_default`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as GluonDescriptor
from triton.tools.tensor_descriptor import TensorDescriptor

from tuner.kernels.device.gemm_persistent import gemm_persistent
from tuner.kernels.device.gemm_specialized import gemm_specialized
from tuner.kernels.device.gemm_streamed import gemm_streamed
from tuner.kernels.device.gemm_tiles import gemm_tiles
from tuner.kernels.device.gemm_vectors import gemm_vectors
from tuner.kernels.rules.gemm_default import default
from tuner.kernels.rules.gemm_space import DESCRIBED, VARIANTS, precision, shared_tiles, sliced_tiles, transposed, valid
from tuner.kernels.rules.tiling import by_threads, describable, flops, tile_count
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
)


def operands(problem: Problem) -> Mapping[str, Operand]:
    """a (M, K), b (K, N), out (M, N), bias (N,). A `t` in the layout: that input is the transpose of a contiguous
    matrix."""
    M, N, K = problem.sizes
    a_is_t, b_is_t = transposed(problem)
    inputs = {
        "a": Operand((M, K), problem.dtype, strides=(1, M) if a_is_t else (K, 1)),
        "b": Operand((K, N), problem.dtype, strides=(1, K) if b_is_t else (N, 1)),
    }
    bias = {"bias": Operand((N,), problem.dtype)} if problem["bias"] else {}
    return {**inputs, **bias, "out": Operand((M, N), problem.dtype, role="out")}


def workspace(problem: Problem, config: Config, limits: Limits) -> Mapping[str, Operand]:
    """The sums of slices, and how many of each tile have arrived; of programs that stay, a counter for each."""
    sliced = sliced_tiles(problem, config, limits.sm_count)
    counters = limits.sm_count if config["VARIANT"] in DESCRIBED else sliced
    sums = sliced * config["SPLIT_K"]
    if config["VARIANT"] == "stream_k":  # at most one unfinished tile of every program, told of in halves
        counters, sums = 2 * limits.sm_count, limits.sm_count
    partials = Operand((sums, config["BLOCK_M"], config["BLOCK_N"]), "fp32")
    return {
        **({"arrived": Operand((counters,), "int32")} if counters else {}),
        **({"partials": partials} if sums else {}),
    }


def launch(problem: Problem, config: Config, tensors: Mapping[str, Any]) -> tuple[Launch, ...]:
    """Some variants need rows without gaps, aligned to 16 bytes; other tensors of the same problem go by tiles."""
    M, N, _ = problem.sizes
    if M == 0 or N == 0:
        return ()
    a_is_t, b_is_t = transposed(problem)
    if config["VARIANT"] == "vectors":
        return (vectors(problem, config, tensors),)
    if config["VARIANT"] == "tiles":
        return (tiles(problem, config, tensors),)
    if describable(tensors["a"], a_is_t) and describable(tensors["b"], b_is_t):
        if config["VARIANT"] == "streamed":
            return (streamed(problem, config, tensors),)
        if describable(tensors["out"]):
            return ((persistent if config["VARIANT"] == "persistent" else specialized)(problem, config, tensors),)
    return (tiles(problem, through_pointers(config), tensors),)


def through_pointers(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """What replaces a config that takes no such tensors: the same tile without slices, for which the workspace has no
    room; for warps with roles, a tile that fits four warps."""
    if config["VARIANT"] == "persistent":
        return {**config, "SPLIT_K": 1}
    if config["VARIANT"] == "streamed":
        return {**config, "BLOCK_N": 64, "BLOCK_K": 64, "num_stages": 4}
    return {**config, "BLOCK_M": 128, "BLOCK_N": min(128, config["BLOCK_N"]), "BLOCK_K": 64, "num_stages": 4}


def compiled_in(problem: Problem, config: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """The knobs that every variant is compiled with, and those of these names."""
    always = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages")
    return {name: config[name] for name in (*always, *names)} | {"ACTIVATION": problem["activation"]}


def strides(tensors: Mapping[str, Any]) -> list[int]:
    return [tensors[name].stride(dim) for name in ("a", "b", "out") for dim in (0, 1)]


def tiles(problem: Problem, config: Mapping[str, Any], tensors: Mapping[str, Any]) -> Launch:
    pointers = [tensors.get(name) for name in ("a", "b", "out", "bias", "partials", "arrived")]
    whole_k = problem["K"] % config["BLOCK_K"] == 0
    return Launch(
        gemm_tiles,
        grid=(tile_count(problem, config) * config["SPLIT_K"],),
        args=(*pointers, *problem.sizes, *strides(tensors), config["GROUP_M"]),
        kwargs=compiled_in(problem, config, "SPLIT_K") | {"PRECISION": precision(problem), "WHOLE_K": whole_k},
    )


def vectors(problem: Problem, config: Mapping[str, Any], tensors: Mapping[str, Any]) -> Launch:
    a_is_t, b_is_t = transposed(problem)
    pointers = [tensors.get(name) for name in ("a", "b", "out", "bias")]
    scales = (None, None)
    return Launch(
        gemm_vectors,
        grid=(tile_count(problem, config),),
        args=(*pointers, *scales, *problem.sizes, *strides(tensors)),
        kwargs=compiled_in(problem, config) | by_threads(problem, config, not a_is_t, b_is_t),
    )


def streamed(problem: Problem, config: Mapping[str, Any], tensors: Mapping[str, Any]) -> Launch:
    M, N, K = problem.sizes
    a, b, out = tensors["a"], tensors["b"], tensors["out"]
    eighths = [length // 8 for length in (K, a.stride(0), b.stride(1))]
    return Launch(
        gemm_streamed,
        grid=(cdiv(N, config["BLOCK_N"]),),
        args=(a, b, out, tensors.get("bias"), M, N, *eighths, out.stride(0), out.stride(1)),
        kwargs=compiled_in(problem, config) | {"STAGES": config["num_stages"]},
    )


def persistent(problem: Problem, config: Mapping[str, Any], tensors: Mapping[str, Any]) -> Launch:
    a_is_t, b_is_t = transposed(problem)
    block_m, block_n, block_k = config["BLOCK_M"], config["BLOCK_N"], config["BLOCK_K"]
    descriptors = (
        described(tensors["a"], block_m, block_k, is_t=a_is_t),
        described(tensors["b"], block_k, block_n, is_t=b_is_t),
        described(tensors["out"], block_m, block_n // config["STORES"]),
    )
    summing = [tensors.get(name) for name in ("bias", "partials", "arrived")]
    programs = tensors["arrived"].shape[0]
    sliced = sliced_tiles(problem, config, programs)
    whole = tile_count(problem, config) - sliced
    return Launch(
        gemm_persistent,
        grid=(min(programs, max(whole, sliced * config["SPLIT_K"])),),
        args=(*descriptors, *summing, *problem.sizes, whole, config["GROUP_M"]),
        kwargs=compiled_in(problem, config, "SPLIT_K", "STORES")
        | {"PRECISION": precision(problem), "A_IS_T": a_is_t, "B_IS_T": b_is_t},
    )


def specialized(problem: Problem, config: Mapping[str, Any], tensors: Mapping[str, Any]) -> Launch:
    a_is_t, b_is_t = transposed(problem)
    block_m, block_n, block_k = config["BLOCK_M"], config["BLOCK_N"], config["BLOCK_K"]
    wide, rest = in_powers_of_2(block_n)
    a, b, out = tensors["a"], tensors["b"], tensors["out"]
    stream_k = config["VARIANT"] == "stream_k"
    programs = tensors["arrived"].shape[0] // (2 if stream_k else 1)
    args = (
        described(a, block_m, block_k, is_t=a_is_t, gluon=problem.dtype),
        described(b, block_k, wide, is_t=b_is_t, gluon=problem.dtype),
        described(b, block_k, rest, is_t=b_is_t, gluon=problem.dtype) if rest else None,
        described(out, block_m // 2, wide // config["STORES"], gluon=problem.dtype),
        described(out, block_m // 2, rest, gluon=problem.dtype) if rest else None,
        *(tensors.get(name) for name in ("bias", "partials", "arrived")),
        *problem.sizes,
        shared_tiles(problem, config, programs),
        config["GROUP_M"],
    )
    return Launch(
        gemm_specialized,
        grid=(programs if stream_k else min(programs, tile_count(problem, config)),),
        args=args,
        kwargs=compiled_in(problem, config, "STORES")
        | {"STAGES": config["num_stages"], "A_IS_T": a_is_t, "B_IS_T": b_is_t, "STREAM_K": stream_k},
    )


def in_powers_of_2(columns: int) -> tuple[int, int]:
    """The two powers of 2 that 192 is the sum of; a power of 2 and 0."""
    wide = 1 << columns.bit_length() - 1
    return wide, columns - wide


def described(
    matrix: Any, rows: int, columns: int, *, is_t: bool = False, gluon: str | None = None
) -> TensorDescriptor | GluonDescriptor:
    """A descriptor of blocks of so many rows and columns, over memory as it lies; with a dtype, one for Gluon."""
    order = slice(None, None, -1 if is_t else 1)
    block = [rows, columns][order]
    lies = (matrix, list(matrix.shape)[order], [matrix.stride(0), matrix.stride(1)][order], block)
    if gluon is None:
        return TensorDescriptor(*lies)
    return GluonDescriptor(*lies, gl.NVMMASharedLayout.get_default_for(block, _GLUON[gluon]))


_GLUON = {"bf16": gl.bfloat16, "fp16": gl.float16}


def reference(problem: Problem, tensors: Mapping[str, Any], rows: slice) -> Mapping[str, Any]:
    """In fp32 for 16-bit inputs (their products are exact there) and in fp64 for fp32 ones."""
    a, b = tensors["a"][rows], tensors["b"]
    out = a.double() @ b.double() if problem.dtype == "fp32" else a.float() @ b.float()
    if problem["bias"]:
        out += tensors["bias"]
    return {"out": activated(problem, out)}


def activated(problem: Problem, x: Any) -> Any:
    import torch

    return {"none": lambda x: x, "silu": torch.nn.functional.silu, "gelu": torch.nn.functional.gelu}[
        problem["activation"]
    ](x)


def vendor(problem: Problem, tensors: Mapping[str, Any]) -> object:
    """`torch.matmul` or `torch.addmm`, which are cuBLAS, and torch's activation after it."""
    import torch

    matmul = torch.backends.cuda.matmul
    before, matmul.allow_tf32 = matmul.allow_tf32, dict(problem.attributes).get("precision") == "tf32"
    a, b, out = tensors["a"], tensors["b"], tensors["out"]
    try:
        if problem["bias"]:
            torch.addmm(tensors["bias"], a, b, out=out)
        else:
            torch.matmul(a, b, out=out)
        return out if problem["activation"] == "none" else out.copy_(activated(problem, out))
    finally:
        matmul.allow_tf32 = before


def rounding(problem: Problem) -> float:
    """A sum of K products in fp32 strays by a root of K half steps, where each is added to all before it: 9.8e-7 at
    K = 1032, and cuBLAS, which adds sums of parts, by 1.7e-7 (H200, 2026-11-29). tf32 keeps 10 bits of a product's
    factors; cuBLAS does not always use it where it may (1 x 1 x 1)."""
    if problem.dtype != "fp32":
        return 0.0
    return 2.0**-10 if precision(problem) == "tf32" else problem["K"] ** 0.5 * 2.0**-24


KERNEL = Kernel(
    signature=Signature(
        op="gemm",
        summary="matrix product out (M, N) = a (M, K) @ b (K, N), bias and activation if asked",
        dims=(
            Dim("M", help="rows of a and out"),
            Dim("N", default="M", help="columns of b and out"),
            Dim("K", default="M", help="columns of a, rows of b"),
        ),
        dtypes=("bf16", "fp16", "fp32"),
        attributes=(
            Attribute("layout", ("nn", "nt", "tn", "tt"), "nn", help="which of a, b is a transposed view (t)"),
            Attribute("bias", (False, True), False, help="whether bias (N,) is added to every row"),
            Attribute("activation", ("none", "silu", "gelu"), "none", help="what is applied to the sums"),
            Attribute("precision", ("ieee", "tf32"), "ieee", help="how fp32 products are made", dtypes=("fp32",)),
        ),
        knobs=(
            Knob("BLOCK_M", (1, 2, 4, 8, 16, 32, 64, 128, 256), "rows of the output tile a program computes"),
            Knob("BLOCK_N", (1, 2, 4, 8, 16, 32, 64, 128, 192, 256), "columns of that tile"),
            Knob("BLOCK_K", (32, 64, 128, 256, 512, 1024, 2048, 4096), "depth of one step of the loop over K"),
            Knob("GROUP_M", (1, 2, 4, 8, 16), "rows of tiles walked together, for reuse in L2; not compiled in"),
            Knob(
                "VARIANT",
                tuple(VARIANTS),
                "a program a tile; one a multiprocessor (Hopper on), also with roles for its warps, or with those and "
                "the last waves shared evenly; b straight to registers; no tensor cores",
                "tiles",
            ),
            Knob("SPLIT_K", (1, 2, 4, 8, 16), "slices along K: of all tiles, or of a persistent kernel's last wave", 1),
            Knob("STORES", (1, 2), "pieces a persistent kernel stores a tile in", 1),
            Knob("num_warps", (2, 4, 8, 16), "warps that share a tile and its accumulators"),
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
    rounding=rounding,
)
