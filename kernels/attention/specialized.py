"""Variant `specialized`: warps with roles, for Hopper. One warp loads, two groups of four compute 64 rows each.

The tensor cores multiply for one group while the other computes its weights: the groups take turns to issue products.
Within a group, the scores of a block are multiplied before the weights of the block before it multiply its values, so
that the exponentials of a block run beside the second product (Shah et al., "FlashAttention-3", 2024).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from tuner.kernels.attention.tiles import LN_2, bounded_tanh, place_of, seen
from tuner.kernels.shared import tma
from tuner.kernels.spec import Problem

ROWS = 64
"""Rows of a group of four warps, which one instruction multiplies."""
_GLUON = {"bf16": gl.bfloat16, "fp16": gl.float16}


@gluon.constexpr_function
def sums_layout(columns):
    """Return the layout in which wgmma leaves sums of `columns` columns in the four warps of a group."""
    return gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, columns, 16])


@gluon.constexpr_function
def weights_layout(columns):
    """Return the layout of weights that multiply values of `columns` columns from registers."""
    return gl.DotOperandLayout(operand_index=0, parent=sums_layout(columns), k_width=2)


@gluon.jit
def work_of(
    nth, tiles, pairs, together, heads, sharing, M, N, window,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, CAUSAL: gl.constexpr, WINDOW: gl.constexpr,
):  # fmt: skip
    """Return the nth tile of this program: sequence, head, head of keys, first row, and its blocks of keys.

    A tile that sees no key has one block, of which it sees nothing.
    """
    _, pair, tile = place_of(gl.program_id(0) + nth * gl.num_programs(0), tiles, pairs, together, 1)
    m = tile * BLOCK_M
    first_position, last_position = m + N - M, min(m + BLOCK_M, M) - 1 + N - M
    first, last, whole_from, whole_to = seen(first_position, last_position, N, window, BLOCK_N, CAUSAL, WINDOW)
    last = max(last, first + 1)
    whole_from = min(max(whole_from, first), last)
    whole_to = min(max(whole_to, whole_from), last)
    return pair // heads, pair % heads, pair % heads // sharing, m, first, last, whole_from, whole_to


@gluon.jit
def fetch(
    q, k, v, q_tiles, k_tiles, v_tiles, q_free, q_full, k_free, k_full, v_free, v_full,
    tiles, pairs, together, heads, sharing, M, N, window,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, D: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr,
    WINDOW: gl.constexpr,
):  # fmt: skip
    """Load the rows of each tile, and keep STAGES blocks of keys and values in flight, the last keys first."""
    ITEM: gl.constexpr = q.dtype.primitive_bitwidth // 8
    step = 0
    for nth in range(gl.cdiv(tiles * pairs - gl.program_id(0), gl.num_programs(0))):
        b, h, g, m, first, last, _, _ = work_of(
            nth, tiles, pairs, together, heads, sharing, M, N, window, BLOCK_M, BLOCK_N, CAUSAL, WINDOW
        )
        for block in range(last - first):
            stage, parity = step % STAGES, step // STAGES % 2 ^ 1
            at = [b, g, (last - 1 - block) * BLOCK_N, 0]
            mbarrier.wait(k_free.index(stage), parity)
            mbarrier.expect(k_full.index(stage), BLOCK_N * D * ITEM)
            tma.async_copy_global_to_shared(k, at, k_full.index(stage), k_tiles.index(stage))
            if block == 0:
                for group in gl.static_range(2):
                    mbarrier.wait(q_free.index(group), nth % 2 ^ 1)
                    mbarrier.expect(q_full.index(group), BLOCK_M // 2 * D * ITEM)
                    of_group = [b, h, m + group * (BLOCK_M // 2), 0]
                    tma.async_copy_global_to_shared(q, of_group, q_full.index(group), q_tiles.index(group))
            mbarrier.wait(v_free.index(stage), parity)
            mbarrier.expect(v_full.index(stage), BLOCK_N * D * ITEM)
            tma.async_copy_global_to_shared(v, at, v_full.index(stage), v_tiles.index(stage))
            step += 1


@gluon.jit
def weighed(
    scores, top, total, position, n, N, window, score, cap,
    CAUSAL: gl.constexpr, WINDOW: gl.constexpr, CAPPED: gl.constexpr, MASKED: gl.constexpr, LAZY: gl.constexpr,
):  # fmt: skip
    """Return the weights of a block, the new shift and sum of each row, the factor of its earlier sums, and its need.

    With LAZY shifts stay while no row's largest score has grown by more than 8: weights are then at most 2^8, and no
    earlier sum is rescaled.
    """
    factor = score
    if CAPPED:
        scores, factor = cap * bounded_tanh(scores * score), 1.0
    if MASKED:
        is_seen = (n < N)[None, :]
        if CAUSAL:
            is_seen = is_seen & (n[None, :] <= position[:, None])
        if WINDOW:
            is_seen = is_seen & (n[None, :] > position[:, None] - window)
            if not CAUSAL:
                is_seen = is_seen & (n[None, :] < position[:, None] + window)
        scores = gl.where(is_seen, scores, -float("inf"))
    new_top = gl.maximum(top, gl.max(scores, 1) * factor)
    has_grown = gl.to_tensor(True)
    if LAZY:
        has_grown = gl.max((new_top - top > 8.0).to(gl.int32), 0) > 0
        new_top = gl.where(has_grown, new_top, top)
    shift = gl.where(new_top == -float("inf"), 0.0, new_top)
    weights = gl.exp2(scores * factor - shift[:, None])
    fading = gl.exp2(top - shift)
    return weights, new_top, total * fading + gl.sum(weights, 1), fading, has_grown


@gluon.jit
def faded(acc, fading, D: gl.constexpr):
    """Return the sums of earlier blocks, rescaled."""
    return acc * gl.convert_layout(fading, gl.SliceLayout(1, sums_layout(D)))[:, None]


@gluon.jit
def over(
    acc, weights, top, total, q_tile, k_tiles, v_tiles, k_free, k_full, v_free, v_full, turns, position,
    step, begin, end, last, N, window, score, cap,
    GROUP: gl.constexpr, BLOCK_N: gl.constexpr, D: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr,
    WINDOW: gl.constexpr, CAPPED: gl.constexpr, MASKED: gl.constexpr, LAZY: gl.constexpr, TURNS: gl.constexpr,
):  # fmt: skip
    """Add blocks `begin` to `end`, counted from the last one; the weights of the block before are in registers."""
    HALF: gl.constexpr = q_tile.shape[0]
    S: gl.constexpr = sums_layout(BLOCK_N)
    for block in range(begin, end):
        stage, before = (step + block) % STAGES, (step + block - 1) % STAGES
        mbarrier.wait(k_full.index(stage), (step + block) // STAGES % 2)
        if TURNS:
            mbarrier.wait(turns.index(GROUP), (step + block) % 2 ^ (1 - GROUP))
        nothing = gl.zeros((HALF, BLOCK_N), gl.float32, S)
        scores = warpgroup_mma(
            q_tile, k_tiles.index(stage).reshape([BLOCK_N, D]).permute((1, 0)), nothing, use_acc=False, is_async=True
        )
        rounded = gl.convert_layout(weights.to(q_tile.dtype), weights_layout(D))
        mbarrier.wait(v_full.index(before), (step + block - 1) // STAGES % 2)
        acc = warpgroup_mma(rounded, v_tiles.index(before).reshape([BLOCK_N, D]), acc, is_async=True)
        if TURNS:
            mbarrier.arrive(turns.index(1 - GROUP))
        scores = warpgroup_mma_wait(1, deps=[scores])
        mbarrier.arrive(k_free.index(stage))
        n = (last - 1 - block) * BLOCK_N + gl.arange(0, BLOCK_N, gl.SliceLayout(0, S))
        weights, top, total, fading, has_grown = weighed(
            scores, top, total, position, n, N, window, score, cap, CAUSAL, WINDOW, CAPPED, MASKED, LAZY
        )
        acc, rounded = warpgroup_mma_wait(0, deps=[acc, rounded])
        mbarrier.arrive(v_free.index(before))
        if LAZY:
            if has_grown:
                acc = faded(acc, fading, D)
        else:
            acc = faded(acc, fading, D)
    return acc, weights, top, total


@gluon.jit
def compute(
    q_tiles, k_tiles, v_tiles, staging, out, lse, q_free, q_full, k_free, k_full, v_free, v_full, turns,
    tiles, pairs, together, heads, sharing, M, N, window, score, cap,
    GROUP: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, D: gl.constexpr, STAGES: gl.constexpr,
    CAUSAL: gl.constexpr, WINDOW: gl.constexpr, CAPPED: gl.constexpr, LAZY: gl.constexpr, TURNS: gl.constexpr,
    SHARED_STAGING: gl.constexpr,
):  # fmt: skip
    """Compute the upper or the lower half of each tile."""
    HALF: gl.constexpr = BLOCK_M // 2
    S: gl.constexpr = sums_layout(BLOCK_N)
    q_tile = q_tiles.index(GROUP).reshape([HALF, D])
    step = 0
    for nth in range(gl.cdiv(tiles * pairs - gl.program_id(0), gl.num_programs(0))):
        b, h, _, m, first, last, whole_from, whole_to = work_of(
            nth, tiles, pairs, together, heads, sharing, M, N, window, BLOCK_M, BLOCK_N, CAUSAL, WINDOW
        )
        m += GROUP * HALF
        row = m + gl.arange(0, HALF, gl.SliceLayout(1, S))
        position = row + N - M
        mbarrier.wait(q_full.index(GROUP), nth % 2)
        stage = step % STAGES
        mbarrier.wait(k_full.index(stage), step // STAGES % 2)
        if TURNS:
            mbarrier.wait(turns.index(GROUP), step % 2 ^ (1 - GROUP))
        nothing = gl.zeros((HALF, BLOCK_N), gl.float32, S)
        scores = warpgroup_mma(
            q_tile, k_tiles.index(stage).reshape([BLOCK_N, D]).permute((1, 0)), nothing, use_acc=False, is_async=True
        )
        if TURNS:
            mbarrier.arrive(turns.index(1 - GROUP))
        scores = warpgroup_mma_wait(0, deps=[scores])
        mbarrier.arrive(k_free.index(stage))
        top = gl.full((HALF,), -float("inf"), gl.float32, gl.SliceLayout(1, S))
        total = gl.zeros((HALF,), gl.float32, gl.SliceLayout(1, S))
        n = (last - 1) * BLOCK_N + gl.arange(0, BLOCK_N, gl.SliceLayout(0, S))
        weights, top, total, _, _ = weighed(
            scores, top, total, position, n, N, window, score, cap, CAUSAL, WINDOW, CAPPED, True, LAZY
        )
        acc = gl.zeros((HALF, D), gl.float32, sums_layout(D))
        acc, weights, top, total = over(
            acc, weights, top, total, q_tile, k_tiles, v_tiles, k_free, k_full, v_free, v_full, turns, position,
            step, 1, last - whole_to, last, N, window, score, cap,
            GROUP, BLOCK_N, D, STAGES, CAUSAL, WINDOW, CAPPED, True, LAZY, TURNS,
        )  # fmt: skip
        acc, weights, top, total = over(
            acc, weights, top, total, q_tile, k_tiles, v_tiles, k_free, k_full, v_free, v_full, turns, position,
            step, max(1, last - whole_to), last - whole_from, last, N, window, score, cap,
            GROUP, BLOCK_N, D, STAGES, CAUSAL, WINDOW, CAPPED, False, LAZY, TURNS,
        )  # fmt: skip
        if WINDOW:
            acc, weights, top, total = over(
                acc, weights, top, total, q_tile, k_tiles, v_tiles, k_free, k_full, v_free, v_full, turns, position,
                step, max(1, last - whole_from), last - first, last, N, window, score, cap,
                GROUP, BLOCK_N, D, STAGES, CAUSAL, WINDOW, CAPPED, True, LAZY, TURNS,
            )  # fmt: skip
        if not SHARED_STAGING:
            mbarrier.arrive(q_free.index(GROUP))
        step += last - first
        stage = (step - 1) % STAGES
        mbarrier.wait(v_full.index(stage), (step - 1) // STAGES % 2)
        rounded = gl.convert_layout(weights.to(q_tile.dtype), weights_layout(D))
        acc = warpgroup_mma(rounded, v_tiles.index(stage).reshape([BLOCK_N, D]), acc, is_async=True)
        total = gl.where(total == 0.0, 1.0, total)
        if lse is not None:
            at = (b * heads + h).to(gl.int64) * M + row
            gl.store(lse + at, (top + gl.log2(total)) * LN_2, mask=row < M)
        acc, rounded = warpgroup_mma_wait(0, deps=[acc, rounded])
        mbarrier.arrive(v_free.index(stage))
        acc = faded(acc, 1.0 / total, D)
        tma.store_wait(0)
        staging.reshape([HALF, D]).store(acc.to(q_tile.dtype))
        fence_async_shared()
        tma.async_copy_shared_to_global(out, [b, h, m, 0], staging)
        if SHARED_STAGING:
            tma.store_wait(0)
            mbarrier.arrive(q_free.index(GROUP))
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["tiles", "pairs", "together", "heads", "sharing", "M", "N", "window"])
def attention_specialized(
    q, k, v, out, lse, tiles, pairs, together, heads, sharing, M, N, window, score, cap,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, D: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr,
    WINDOW: gl.constexpr, CAPPED: gl.constexpr, LAZY: gl.constexpr, TURNS: gl.constexpr,
    SHARED_STAGING: gl.constexpr,
):  # fmt: skip
    """Start the roles of a persistent program.

    With SHARED_STAGING the rows of q give their place to those of out; else the next rows of q arrive meanwhile.
    """
    q_tiles = gl.allocate_shared_memory(q.dtype, [2] + q.block_shape, q.layout)
    k_tiles = gl.allocate_shared_memory(k.dtype, [STAGES] + k.block_shape, k.layout)
    v_tiles = gl.allocate_shared_memory(v.dtype, [STAGES] + v.block_shape, v.layout)
    staging = q_tiles
    if not SHARED_STAGING:
        staging = gl.allocate_shared_memory(out.dtype, [2] + out.block_shape, out.layout)
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
    gl.warp_specialize(
        [
            (compute, (q_tiles, k_tiles, v_tiles, staging.index(0), out, lse, q_free, q_full, k_free, k_full, v_free,
                       v_full, turns, tiles, pairs, together, heads, sharing, M, N, window, score, cap,
                       0, BLOCK_M, BLOCK_N, D, STAGES, CAUSAL, WINDOW, CAPPED, LAZY, TURNS, SHARED_STAGING)),
            (compute, (q_tiles, k_tiles, v_tiles, staging.index(1), out, lse, q_free, q_full, k_free, k_full, v_free,
                       v_full, turns, tiles, pairs, together, heads, sharing, M, N, window, score, cap,
                       1, BLOCK_M, BLOCK_N, D, STAGES, CAUSAL, WINDOW, CAPPED, LAZY, TURNS, SHARED_STAGING)),
            (fetch, (q, k, v, q_tiles, k_tiles, v_tiles, q_free, q_full, k_free, k_full, v_free, v_full,
                     tiles, pairs, together, heads, sharing, M, N, window,
                     BLOCK_M, BLOCK_N, D, STAGES, CAUSAL, WINDOW)),
        ],
        [4, 1],
        [240, 24],  # registers of a thread; the first group gets the rest of 65,536
    )  # fmt: skip


def described(problem: Problem, config: Mapping[str, Any], tensors: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return descriptors of q, k, v and out, of blocks of rows of one head, and lse.

    Rows past the end of a sequence are zeros.
    """
    half, keys = config["BLOCK_M"] // 2, config["BLOCK_N"]
    found: list[Any] = []
    for name, rows in (("q", half), ("k", keys), ("v", keys), ("out", half)):
        x = tensors[name]
        block = [1, 1, rows, problem["D"]]
        layout = gl.NVMMASharedLayout.get_default_for(block, _GLUON[problem.dtype])
        found.append(TensorDescriptor(x, list(x.shape), [x.stride(dim) for dim in range(4)], block, layout))
    return (*found, tensors.get("lse"))


def describable(x: Any) -> bool:
    """Return whether the copy engine can read a tensor: heads without gaps, all strides multiples of 16 bytes."""
    strides = [x.stride(dim) for dim in range(3)]
    return bool(
        x.stride(3) == 1
        and all(stride > 0 and stride * x.dtype.itemsize % 16 == 0 for stride in strides)
        and x.data_ptr() % 16 == 0
    )
