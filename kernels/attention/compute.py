"""Computing role of the variant `specialized`: a group of four warps with half of the rows of each tile."""

from __future__ import annotations

import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from tuner.kernels.attention.fetch import count_of, nth_of, work_of
from tuner.kernels.attention.tiles import LN_2, bounded_tanh
from tuner.kernels.shared import tma


@gluon.constexpr_function
def sums_layout(columns):
    """Return the layout in which wgmma leaves sums of `columns` columns in the four warps of a group."""
    return gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, columns, 16])


@gluon.constexpr_function
def weights_layout(columns):
    """Return the layout of weights that multiply values of `columns` columns from registers."""
    return gl.DotOperandLayout(operand_index=0, parent=sums_layout(columns), k_width=2)


@gluon.constexpr_function
def copied_layout(columns):
    """Return the layout in which the four warps of a group copy rows of `columns` columns, 16 bytes at a time."""
    return gl.BlockedLayout([1, 8], [256 // columns, columns // 8], [4, 1], [1, 0])


@gluon.jit
def weighed(
    scores, top, total, position, n, N, window, score, cap,
    CAUSAL: gl.constexpr, WINDOW: gl.constexpr, CAPPED: gl.constexpr, MASKED: gl.constexpr,
):  # fmt: skip
    """Return the weights of a block, the new largest score and sum of each row, and the factor of its earlier sums."""
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
    shift = gl.where(new_top == -float("inf"), 0.0, new_top)
    weights = gl.exp2(scores * factor - shift[:, None])
    fading = gl.exp2(top - shift)
    return weights, new_top, total * fading + gl.sum(weights, 1), fading


@gluon.jit
def faded(acc, fading, BLOCK_D: gl.constexpr):
    """Return the sums of earlier blocks, rescaled."""
    return acc * gl.convert_layout(fading, gl.SliceLayout(1, sums_layout(BLOCK_D)))[:, None]


@gluon.jit
def over(
    acc, weights, top, total, q_tile, k_tiles, v_tiles, k_free, k_full, v_free, v_full, turns, position,
    step, begin, end, last, N, window, score, cap,
    GROUP: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_D: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr,
    WINDOW: gl.constexpr, CAPPED: gl.constexpr, MASKED: gl.constexpr, TURNS: gl.constexpr,
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
            q_tile,
            k_tiles.index(stage).reshape([BLOCK_N, BLOCK_D]).permute((1, 0)),
            nothing,
            use_acc=False,
            is_async=True,
        )
        rounded = gl.convert_layout(weights.to(q_tile.dtype), weights_layout(BLOCK_D))
        mbarrier.wait(v_full.index(before), (step + block - 1) // STAGES % 2)
        acc = warpgroup_mma(rounded, v_tiles.index(before).reshape([BLOCK_N, BLOCK_D]), acc, is_async=True)
        if TURNS:
            mbarrier.arrive(turns.index(1 - GROUP))
        scores = warpgroup_mma_wait(1, deps=[scores])
        mbarrier.arrive(k_free.index(stage))
        n = (last - 1 - block) * BLOCK_N + gl.arange(0, BLOCK_N, gl.SliceLayout(0, S))
        weights, top, total, fading = weighed(
            scores, top, total, position, n, N, window, score, cap, CAUSAL, WINDOW, CAPPED, MASKED
        )
        acc, rounded = warpgroup_mma_wait(0, deps=[acc, rounded])
        mbarrier.arrive(v_free.index(before))
        acc = faded(acc, fading, BLOCK_D)
    return acc, weights, top, total


@gluon.jit
def cleared(values, first, keys, BLOCK_N: gl.constexpr, BLOCK_D: gl.constexpr):
    """Overwrite values past the keys of a sequence with zeros, since a weight of 0 times a NaN is a NaN.

    Both groups do it, each before it multiplies.
    """
    L: gl.constexpr = copied_layout(BLOCK_D)
    n = first + gl.arange(0, BLOCK_N, gl.SliceLayout(1, L))
    found = values.load(L)
    values.store(gl.where((n < keys)[:, None], found, gl.zeros_like(found)))
    fence_async_shared()
    tl.debug_barrier()


@gluon.jit
def compute(
    q_tiles, k_tiles, v_tiles, staging, out, lse, partial, partial_lse, q_free, q_full, k_free, k_full, v_free, v_full,
    turns, sizes, cu_q, cu_k, lengths, strides, all_rows, score, cap,
    GROUP: gl.constexpr, PACK: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, D: gl.constexpr,
    BLOCK_D: gl.constexpr, STAGES: gl.constexpr, SPLITS: gl.constexpr, CAUSAL: gl.constexpr, WINDOW: gl.constexpr,
    CAPPED: gl.constexpr, RAGGED: gl.constexpr, TURNS: gl.constexpr, SHARED_STAGING: gl.constexpr,
):  # fmt: skip
    """Compute the upper or the lower half of each tile: of PACK heads, one after the other, the same rows.

    Args:
        out: a descriptor, or the address of packed sequences, in which rows past the end are the next sequence's.
        strides: of packed out, from head to head and from row to row; and of lse, from sequence to sequence, too.
    """
    HALF: gl.constexpr = BLOCK_M // 2
    ROWS: gl.constexpr = HALF // PACK
    S: gl.constexpr = sums_layout(BLOCK_N)
    stride_oh, stride_om, stride_lb, stride_lh, stride_lm = strides
    window = sizes[7]
    q_tile, staged = q_tiles.index(GROUP).reshape([HALF, BLOCK_D]), staging.reshape([HALF, BLOCK_D])
    step = 0
    for nth in range(count_of(sizes, SPLITS)):
        program = nth_of(nth)
        split, b, h, _, m, first_row, rows, _, keys, first, last, whole_from, whole_to = work_of(
            program, sizes, cu_q, cu_k, lengths, 2 * ROWS, BLOCK_N, SPLITS, CAUSAL, WINDOW
        )
        h *= PACK
        m += GROUP * ROWS
        place = gl.arange(0, HALF, gl.SliceLayout(1, S))
        row, head = m + place % ROWS, h + place // ROWS
        top = gl.full((HALF,), -float("inf"), gl.float32, gl.SliceLayout(1, S))
        total = gl.zeros((HALF,), gl.float32, gl.SliceLayout(1, S))
        acc = gl.zeros((HALF, BLOCK_D), gl.float32, sums_layout(BLOCK_D))
        mbarrier.wait(q_full.index(GROUP), nth % 2)
        if last > first:
            position = row + keys - rows
            stage = step % STAGES
            mbarrier.wait(k_full.index(stage), step // STAGES % 2)
            if TURNS:
                mbarrier.wait(turns.index(GROUP), step % 2 ^ (1 - GROUP))
            nothing = gl.zeros((HALF, BLOCK_N), gl.float32, S)
            columns = k_tiles.index(stage).reshape([BLOCK_N, BLOCK_D]).permute((1, 0))
            scores = warpgroup_mma(q_tile, columns, nothing, use_acc=False, is_async=True)
            if TURNS:
                mbarrier.arrive(turns.index(1 - GROUP))
            scores = warpgroup_mma_wait(0, deps=[scores])
            mbarrier.arrive(k_free.index(stage))
            n = (last - 1) * BLOCK_N + gl.arange(0, BLOCK_N, gl.SliceLayout(0, S))
            weights, top, total, _fading = weighed(
                scores, top, total, position, n, keys, window, score, cap, CAUSAL, WINDOW, CAPPED, True
            )
            if RAGGED:
                if last * BLOCK_N > keys:
                    mbarrier.wait(v_full.index(stage), step // STAGES % 2)
                    cleared(
                        v_tiles.index(stage).reshape([BLOCK_N, BLOCK_D]), (last - 1) * BLOCK_N, keys, BLOCK_N, BLOCK_D
                    )
            acc, weights, top, total = over(
                acc, weights, top, total, q_tile, k_tiles, v_tiles, k_free, k_full, v_free, v_full, turns, position,
                step, 1, last - whole_to, last, keys, window, score, cap,
                GROUP, BLOCK_N, BLOCK_D, STAGES, CAUSAL, WINDOW, CAPPED, True, TURNS,
            )  # fmt: skip
            acc, weights, top, total = over(
                acc, weights, top, total, q_tile, k_tiles, v_tiles, k_free, k_full, v_free, v_full, turns, position,
                step, max(1, last - whole_to), last - whole_from, last, keys, window, score, cap,
                GROUP, BLOCK_N, BLOCK_D, STAGES, CAUSAL, WINDOW, CAPPED, False, TURNS,
            )  # fmt: skip
            if WINDOW:
                acc, weights, top, total = over(
                    acc, weights, top, total, q_tile, k_tiles, v_tiles, k_free, k_full, v_free, v_full, turns, position,
                    step, max(1, last - whole_from), last - first, last, keys, window, score, cap,
                    GROUP, BLOCK_N, BLOCK_D, STAGES, CAUSAL, WINDOW, CAPPED, True, TURNS,
                )  # fmt: skip
            if not SHARED_STAGING:
                mbarrier.arrive(q_free.index(GROUP))
            step += last - first
            stage = (step - 1) % STAGES
            rounded = gl.convert_layout(weights.to(q_tile.dtype), weights_layout(BLOCK_D))
            mbarrier.wait(v_full.index(stage), (step - 1) // STAGES % 2)
            acc = warpgroup_mma(rounded, v_tiles.index(stage).reshape([BLOCK_N, BLOCK_D]), acc, is_async=True)
            acc, rounded = warpgroup_mma_wait(0, deps=[acc, rounded])
            mbarrier.arrive(v_free.index(stage))

        total = gl.where(total == 0.0, 1.0, total)
        acc = faded(acc, 1.0 / total, BLOCK_D)
        logs = top + gl.log2(total)
        at_lse = b.to(gl.int64) * stride_lb + head.to(gl.int64) * stride_lh + (first_row + row).to(gl.int64) * stride_lm
        if SPLITS > 1:
            at_lse += split.to(gl.int64) * all_rows
            gl.store(partial_lse + at_lse, logs, mask=row < rows)
            at = gl.convert_layout(at_lse, gl.SliceLayout(1, sums_layout(BLOCK_D)))[:, None] * D
            d = gl.arange(0, BLOCK_D, gl.SliceLayout(0, sums_layout(BLOCK_D)))[None, :]
            exists = gl.convert_layout((row < rows).to(gl.int32), gl.SliceLayout(1, sums_layout(BLOCK_D))) > 0
            gl.store(partial + at + d, acc, mask=exists[:, None] & (d < D))
        elif cu_q is not None:
            L: gl.constexpr = copied_layout(BLOCK_D)
            if lse is not None:
                gl.store(lse + at_lse, logs * LN_2, mask=row < rows)
            staged.store(acc.to(q_tile.dtype))
            tl.debug_barrier()
            own_place = gl.arange(0, HALF, gl.SliceLayout(1, L))
            own_row, own_head = m + own_place % ROWS, h + own_place // ROWS
            at_out = own_head.to(gl.int64) * stride_oh + (first_row + own_row).to(gl.int64) * stride_om
            d = gl.arange(0, BLOCK_D, gl.SliceLayout(0, L))
            stored = (own_row < rows)[:, None] & (d < D)[None, :]
            gl.store(out + at_out[:, None] + d[None, :], staged.load(L), mask=stored)
            fence_async_shared()  # before rows of q take the place
            tl.debug_barrier()
        else:
            if lse is not None:
                gl.store(lse + at_lse, logs * LN_2, mask=row < rows)
            tma.store_wait(0)
            staged.store(acc.to(q_tile.dtype))
            fence_async_shared()
            tma.async_copy_shared_to_global(out, [b, h, m, 0], staging)
            if SHARED_STAGING:
                tma.store_wait(0)
        if SHARED_STAGING:
            mbarrier.arrive(q_free.index(GROUP))
        else:
            mbarrier.arrive(q_free.index(GROUP), pred=last == first)
    tma.store_wait(0)
