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
from dataclasses import dataclass
from typing import Any

from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as GluonDescriptor
from triton.tools.tensor_descriptor import TensorDescriptor

from tuner.kernels.device.gemm_vectors import gemm_vectors
from tuner.kernels.device.scaled_persistent import scaled_persistent
from tuner.kernels.device.scaled_specialized import scaled_specialized
from tuner.kernels.device.scaled_tiles import scaled_tiles
from tuner.kernels.rules.scaled_default import default
from tuner.kernels.rules.scaled_space import BLOCK, DESCRIBED, SIDES, VARIANTS, swapped, valid
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
    itemsize,
)


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
    """By gemm's kernel: both factors lie along K."""
    a, b, out, scale_a, scale_b = (tensors[name] for name in ("a", "b", "out", "scale_a", "scale_b"))
    strides = [tensor.stride(dim) for tensor in (a, b, out) for dim in (0, 1)]
    return Launch(
        gemm_vectors,
        grid=(tile_count(problem, config),),
        args=(a, b, out, None, scale_a, scale_b, *problem.sizes, *strides),
        kwargs={name: config[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages")}
        | {"ACTIVATION": "none"}
        | by_threads(problem, config, True, True),
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
