"""Variants `specialized` and `swapped`: warps with roles. Their device code is in `shared.specialized`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as GluonDescriptor

from tuner.kernels.scaled_gemm.factors import Rows, factors
from tuner.kernels.scaled_gemm.space import BLOCK, is_promoted, shares_evenly, staging_slots, swapped, tile_of_roles
from tuner.kernels.shared.roles import walked_together
from tuner.kernels.shared.specialized import gemm_specialized, of_parts
from tuner.kernels.shared.tiling import ALIGNED_BYTES, tile_count
from tuner.kernels.shared.wide_wgmma import compiled_tile, is_kept
from tuner.kernels.spec import Launch, Problem, cdiv, itemsize


def specialized(problem: Problem, config: Mapping[str, Any], tensors: Mapping[str, Any]) -> Launch:
    left, right = factors(problem, config, tensors)
    tile, tiles, K = compiled_tile(tile_of_roles(problem, config), is_kept()), tile_count(problem, config), problem["K"]
    of_blocks, shared, slices = problem["scales"] == "block", shares_evenly(config), config["SPLIT_K"]
    counters = tensors["arrived"].shape[0]
    programs = counters // tile.groups if shared else counters if slices == 1 else tiles * slices
    slots = staging_slots(problem, config, programs)
    scale_left = left.scales
    if of_blocks:
        numbers = (cdiv(K, BLOCK) - 1) * left.scale_strides[1] + left.count
        scale_left = in_gluon(gl.float32, left.scales, [numbers], [1], [tile.rows])

    def of_factor(factor: Rows) -> Callable[[int], GluonDescriptor]:
        lies = (factor.matrix, [factor.count, K], [factor.stride, 1])
        return lambda rows: in_gluon(gl.float8e4nv, *lies, [rows, tile.block_k])

    def piece(part: int) -> GluonDescriptor:
        out, block = tensors["out"], [tile.rows, tile.chunk(part)]
        block = block[::-1] if swapped(config) else block
        return in_gluon(_GLUON[problem["out_dtype"]], out, list(problem.sizes[:2]), [out.stride(0), 1], block)

    return Launch(
        gemm_specialized,
        grid=(min(programs, tiles * slices),),
        args=(
            of_factor(left)(tile.rows),
            *of_parts(tile, of_factor(right)),
            *of_parts(tile, piece),
            None,  # bias
            *(scale_left, right.scales, tensors.get("partials"), tensors["arrived"]),
            *(left.count, right.count, K),
            *(left.scale_strides[1], *right.scale_strides),
            tiles if shared else 0,
            walked_together(left.count, right.count, tile),
        ),
        kwargs={
            **tile.compiled_in(slots),
            "WIDE": tile.wide,
            "SPLIT_K": 1 if shared else slices,
            "STREAM_K": shared,
            **moved_back(problem, config),
            "SWAPPED": swapped(config),
            "LEFT_ACROSS_K": False,
            "RIGHT_ACROSS_K": False,
            "ACTIVATION": "none",
            "SCALES": problem["scales"],
            "PROMOTED": is_promoted(problem),
            "num_warps": config["num_warps"],
        },
    )


def moved_back(problem: Problem, config: Mapping[str, Any]) -> dict[str, int]:
    """Return LEFT_EACH and RIGHT_EACH: multiples of rows and columns to which the last tile is moved back.

    A box of the copy engine begins at a multiple of 16 bytes of a contiguous row: of out, and of scales of a's blocks.
    A tile's columns have one scale of blocks. If tiles are shared, a program's share decides how a sum is cut, so
    neighbours' sums differ.
    """
    if shares_evenly(config):
        return {"LEFT_EACH": 0, "RIGHT_EACH": 0}
    if problem["scales"] == "block":
        return {"LEFT_EACH": ALIGNED_BYTES // itemsize("fp32"), "RIGHT_EACH": 0}
    each = ALIGNED_BYTES // itemsize(problem["out_dtype"])
    return {"LEFT_EACH": each, "RIGHT_EACH": 1} if swapped(config) else {"LEFT_EACH": 1, "RIGHT_EACH": each}


def in_gluon(dtype: Any, matrix: Any, shape: list[int], strides: list[int], block: list[int]) -> GluonDescriptor:
    return GluonDescriptor(matrix, shape, strides, block, gl.NVMMASharedLayout.get_default_for(block, dtype))


_GLUON = {"bf16": gl.bfloat16, "fp16": gl.float16}
