"""Variant `specialized`: warps with roles, for Hopper. One warp loads, two groups of four compute 64 rows each.

With TURNS, the groups issue products in turn: the tensor cores multiply for one while the other computes its weights.
Within a group, the scores of a block are multiplied before the weights of the block before it multiply its values, so
that the exponentials of a block run beside the second product (Shah et al., "FlashAttention-3", 2024).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from tuner.kernels.attention.compute import compute
from tuner.kernels.attention.fetch import fetch
from tuner.kernels.attention.sequences import paged
from tuner.kernels.attention.space import head_width, packed_heads
from tuner.kernels.shared.products import multiple
from tuner.kernels.spec import Problem

_GLUON = {"bf16": gl.bfloat16, "fp16": gl.float16}


@gluon.jit(do_not_specialize=["tiles", "pairs", "together", "heads", "sharing", "M", "N", "window", "all_rows"])
def attention_specialized(
    q, k, v, out, lse, partial, partial_lse, cu_q, cu_k, table, lengths,
    tiles, pairs, together, heads, sharing, M, N, window, score, cap, all_rows,
    stride_oh, stride_om, stride_lb, stride_lh, stride_lm, stride_t,
    PACK: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, D: gl.constexpr, BLOCK_D: gl.constexpr,
    STAGES: gl.constexpr, SPLITS: gl.constexpr, PAGE: gl.constexpr, CAUSAL: gl.constexpr, WINDOW: gl.constexpr,
    CAPPED: gl.constexpr, RAGGED: gl.constexpr, TURNS: gl.constexpr, SHARED_STAGING: gl.constexpr,
    ALIGN: gl.constexpr,
):  # fmt: skip
    """Start the roles of a persistent program.

    With SHARED_STAGING the rows of q give their place to those of out; else the next rows of q arrive meanwhile. Sums
    of a share of the keys are stored from registers. With RAGGED there may be memory past the keys of a sequence that
    holds anything. Strides of packed out are multiples of ALIGN.
    """
    q_tiles = gl.allocate_shared_memory(q.dtype, [2] + q.block_shape, q.layout)
    k_tiles = gl.allocate_shared_memory(k.dtype, [STAGES, 1, 1, BLOCK_N, BLOCK_D], q.layout)
    v_tiles = gl.allocate_shared_memory(v.dtype, [STAGES, 1, 1, BLOCK_N, BLOCK_D], q.layout)
    staging = q_tiles
    if SPLITS == 1 and not SHARED_STAGING:
        staging = gl.allocate_shared_memory(q.dtype, [2] + q.block_shape, q.layout)
    q_free = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    q_full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    turns = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for group in gl.static_range(2):
        mbarrier.init(q_free.index(group), count=1)
        mbarrier.init(q_full.index(group), count=1)
        mbarrier.init(turns.index(group), count=1)
    k_free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    k_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(k_free.index(stage), count=2)  # both groups have read it
        mbarrier.init(k_full.index(stage), count=1)
        mbarrier.init(v_free.index(stage), count=2)
        mbarrier.init(v_full.index(stage), count=1)
    fence_async_shared()
    FOR_PAGES: gl.constexpr = 16 if PAGE > 0 and PAGE < BLOCK_N else 0
    sizes = (tiles, pairs, together, heads, sharing, M, N, window)
    strides = (multiple(stride_oh, ALIGN), multiple(stride_om, ALIGN), stride_lb, stride_lh, stride_lm)
    gl.warp_specialize(
        [
            (compute, (q_tiles, k_tiles, v_tiles, staging.index(0), out, lse, partial, partial_lse,
                       q_free, q_full, k_free, k_full, v_free, v_full, turns, sizes, cu_q, cu_k, lengths, strides,
                       all_rows, score, cap, 0, PACK, BLOCK_M, BLOCK_N, D, BLOCK_D, STAGES, SPLITS, CAUSAL, WINDOW,
                       CAPPED, RAGGED, TURNS, SHARED_STAGING)),
            (compute, (q_tiles, k_tiles, v_tiles, staging.index(1), out, lse, partial, partial_lse,
                       q_free, q_full, k_free, k_full, v_free, v_full, turns, sizes, cu_q, cu_k, lengths, strides,
                       all_rows, score, cap, 1, PACK, BLOCK_M, BLOCK_N, D, BLOCK_D, STAGES, SPLITS, CAUSAL, WINDOW,
                       CAPPED, RAGGED, TURNS, SHARED_STAGING)),
            (fetch, (q, k, v, q_tiles, k_tiles, v_tiles, q_free, q_full, k_free, k_full, v_free, v_full,
                     sizes, cu_q, cu_k, table, stride_t, lengths,
                     BLOCK_M // PACK, BLOCK_N, BLOCK_D, STAGES, SPLITS, PAGE, CAUSAL, WINDOW)),
        ],
        [4, 1],
        [240 - FOR_PAGES // 2, 24 + FOR_PAGES],  # registers of a thread; the first group gets the rest of 65,536
    )  # fmt: skip


def described(problem: Problem, config: Mapping[str, Any], tensors: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return descriptors of q, k, v and out, of blocks of rows of packed heads; packed out as it is.

    Rows past the end of a dense tensor are zeros, and so are columns past D. If a block has the keys of several pages,
    they are copied in pieces of a page and 64 columns.
    """
    heads = packed_heads(problem, config)
    half, keys, page = config["BLOCK_M"] // 2, config["BLOCK_N"], problem["page"]
    is_pieced = 0 < page < keys
    found: list[Any] = []
    for name, rows in (("q", half), ("k", keys), ("v", keys), ("out", half)):
        x = tensors[name]
        shape, strides = viewed(problem, x, name)
        block = [1, 1, rows, head_width(problem)]
        if name in ("q", "out"):
            block = [1, heads, rows // heads, head_width(problem)]
        elif is_pieced:
            block = [1, 1, page, 64]
        layout = gl.NVMMASharedLayout.get_default_for(block, _GLUON[problem.dtype])
        packed_out = name == "out" and problem["packed"]
        found.append(x if packed_out else TensorDescriptor(x, shape, strides, block, layout))
    return tuple(found)


def viewed(problem: Problem, x: Any, name: str) -> tuple[list[int], list[int]]:
    """Return the shape and the strides of a tensor as (sequences or pages, heads, rows, D)."""
    if name in ("k", "v") and paged(problem):
        order = (0, 2, 1, 3)
    elif problem["packed"]:
        rows, heads, columns = x.shape
        return [1, heads, rows, columns], [rows * x.stride(0), x.stride(1), x.stride(0), x.stride(2)]
    else:
        order = (0, 1, 2, 3)
    return [x.shape[dim] for dim in order], [x.stride(dim) for dim in order]


def describable(x: Any) -> bool:
    """Return whether the copy engine can read a tensor: heads without gaps, all strides multiples of 16 bytes."""
    strides = [x.stride(dim) for dim in range(len(x.shape) - 1)]
    return bool(
        x.stride(len(x.shape) - 1) == 1
        and all(stride > 0 and stride * x.dtype.itemsize % 16 == 0 for stride in strides)
        and x.data_ptr() % 16 == 0
    )
