"""Variant `specialized`: warps with roles, for sums that leave the tensor cores every 128 products; on Hopper.

Threads add up such sums, and issue no products meanwhile: in one group of warps, adding and multiplying take turns. Two
groups that wait only for their operands fall out of step by themselves, and one adds while the other multiplies. The
tensor cores are idle while a group is between its sums and its next products, so all waiting and counting is done while
products run.
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
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as GluonDescriptor

from tuner.kernels.scaled_gemm.factors import factors
from tuner.kernels.scaled_gemm.space import BLOCK
from tuner.kernels.shared import tma
from tuner.kernels.shared.products import corner_of
from tuner.kernels.shared.stream_k import (
    joined,
    leave,
    piece_of,
    pieces_of,
    put,
    tell,
    wait_for_other,
)
from tuner.kernels.shared.stream_k import sums_layout as gemms_layout
from tuner.kernels.shared.tiling import tile_count
from tuner.kernels.spec import Launch, Problem, cdiv


@gluon.constexpr_function
def sums_layout(columns):
    """Return the layout in which wgmma leaves a sum of 8-bit floats of `columns` columns in a group's four warps."""
    return gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, columns, 32])


@gluon.jit
def products_of(a, b, like):
    """Issue one step's products. Return them before they are complete."""
    return warpgroup_mma(a, b.permute((1, 0)), gl.zeros_like(like), use_acc=False, is_async=True)


@gluon.jit
def promoted(acc, products, by_a, by_b):
    """Return the sum with one step's products, which leave the tensor cores here, times their scales if they have any.

    The last wait completes the sum before more products are issued; otherwise registers would hold the products of two
    steps beside it.
    """
    products = warpgroup_mma_wait(0, deps=[products])
    acc += products * gl.expand_dims(by_a * by_b, 1) if by_a is not None else products
    return warpgroup_mma_wait(0, deps=[acc])


@gluon.jit
def fetch(
    a, b, scale_a, a_tiles, b_tiles, scales, free, full, M, N, K, stride_sak, shared, group_m,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, STAGES: gl.constexpr,
    SHARED: gl.constexpr, OF_BLOCKS: gl.constexpr,
):  # fmt: skip
    """Keep STAGES steps in flight, across tiles: a, b, and with scales of blocks the scales of a's rows."""
    SCALE_BYTES: gl.constexpr = 4 * BLOCK_M if OF_BLOCKS else 0
    steps = gl.cdiv(K, BLOCK_K)
    step = 0
    for nth_piece in range(pieces_of(gl.cdiv(M, BLOCK_M) * gl.cdiv(N, BLOCK_N), shared, steps, SHARED)):
        tile, first, end = piece_of(nth_piece, shared, steps, SHARED)
        m, n = corner_of(tile, M, N, group_m, BLOCK_M, BLOCK_N)
        for block in range(first, end):
            stage = step % STAGES
            arrived = full.index(stage)
            mbarrier.wait(free.index(stage), step // STAGES % 2 ^ 1)
            mbarrier.expect(arrived, (BLOCK_M + BLOCK_N) * BLOCK_K + SCALE_BYTES)
            tma.async_copy_global_to_shared(a, [m, block * BLOCK_K], arrived, a_tiles.index(stage))
            tma.async_copy_global_to_shared(b, [n, block * BLOCK_K], arrived, b_tiles.index(stage))
            if OF_BLOCKS:
                tma.async_copy_global_to_shared(scale_a, [block * stride_sak + m], arrived, scales.index(stage))
            step += 1


@gluon.jit
def left_or_whole(
    acc, partials, column, begun, ends,
    GROUP: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr,
):  # fmt: skip
    """Return 128 columns of a sum plus those of the program before; write them if the next program ends the tile."""
    as_gemms = gl.convert_layout(acc, gemms_layout(128), assert_trivial=True)
    if begun:
        as_gemms = joined(as_gemms, partials, column, GROUP, BLOCK_M, BLOCK_N)
    if not ends:
        leave(as_gemms, partials, column, GROUP, BLOCK_M, BLOCK_N)
    return gl.convert_layout(as_gemms, acc.type.layout, assert_trivial=True)


@gluon.jit
def multiply(
    a_tiles, b_tiles, scales, staging, out, scale_a, scale_b, partials, arrived, free, full, M, N, K,
    stride_sbn, stride_sbk, shared, group_m,
    GROUP: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, STAGES: gl.constexpr,
    SHARED: gl.constexpr, OF_BLOCKS: gl.constexpr,
):  # fmt: skip
    """Compute the upper or lower half of each tile, 128 columns at a time; with scales of blocks a tile has no more.

    The scales of a's rows are copied with the rows: all programs are at the same block along K, so each scale comes
    from memory, and a step that loaded its own would wait for it. Those of b are neighbours along K, mostly in L1.
    """
    gl.static_assert(BLOCK_N == 128 or not OF_BLOCKS)
    ROWS: gl.constexpr = BLOCK_M // 2
    sums: gl.constexpr = sums_layout(128)
    steps = gl.cdiv(K, BLOCK_K)
    stage, phase = 0, 0
    if not OF_BLOCKS:
        by = gl.load(scale_a) * gl.load(scale_b)
    for nth_piece in range(pieces_of(gl.cdiv(M, BLOCK_M) * gl.cdiv(N, BLOCK_N), shared, steps, SHARED)):
        tile, first, end = piece_of(nth_piece, shared, steps, SHARED)
        m, n = corner_of(tile, M, N, group_m, BLOCK_M, BLOCK_N)
        m += GROUP * ROWS
        mbarrier.wait(full.index(stage), phase)
        if OF_BLOCKS:
            at_b = scale_b + n // 128 * stride_sbn
            next_b = gl.load(at_b + first * stride_sbk)
        acc = gl.zeros((ROWS, 128), gl.float32, sums)
        rest = gl.zeros((ROWS, 128), gl.float32, sums)
        for nth in range(first, end):
            a = a_tiles.index(stage).slice(GROUP * ROWS, ROWS, 0)
            b = b_tiles.index(stage)
            done = free.index(stage)
            by_a, by_b = None, None
            if OF_BLOCKS:
                by_a = scales.index(stage).slice(GROUP * ROWS, ROWS).load(gl.SliceLayout(1, sums))
                by_b, next_b = next_b, gl.load(at_b + min(nth + 1, end - 1) * stride_sbk)
            products = products_of(a, b.slice(0, 128, 0), acc)
            stage += 1
            phase ^= (stage == STAGES).to(gl.int32)
            stage = gl.where(stage == STAGES, 0, stage)
            mbarrier.wait(full.index(stage), phase, pred=nth + 1 < end)
            acc = promoted(acc, products, by_a, by_b)
            if BLOCK_N == 256:
                rest = promoted(rest, products_of(a, b.slice(128, 128, 0), rest), None, None)
            mbarrier.arrive(done)

        if SHARED:
            if first > 0:
                wait_for_other(arrived, GROUP)
            acc = left_or_whole(acc, partials, 0, first > 0, end == steps, GROUP, BLOCK_M, BLOCK_N)
            if BLOCK_N == 256:
                rest = left_or_whole(rest, partials, 128, first > 0, end == steps, GROUP, BLOCK_M, BLOCK_N)
            if end < steps:
                tell(arrived, GROUP)
        if end == steps:
            if not OF_BLOCKS:
                acc *= by
                rest *= by
            put(acc, out, staging, m, n, 1)
            if BLOCK_N == 256:
                put(rest, out, staging, m, n + 128, 1)
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["shared", "group_m"])
def scaled_specialized(
    a, b, out, scale_a, scale_b, partials, arrived, M, N, K,
    stride_sak, stride_sbn, stride_sbk, shared, group_m,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, STAGES: gl.constexpr,
    SHARED: gl.constexpr, OF_BLOCKS: gl.constexpr,
):  # fmt: skip
    """Start the roles of a persistent program, with b as its rows (N, K).

    With scales of blocks, `scale_a` describes all scales of a as one row. With SHARED, the steps along K of all tiles
    are cut into an even share for each program.
    """
    a_tiles = gl.allocate_shared_memory(a.dtype, [STAGES] + a.block_shape, a.layout)
    b_tiles = gl.allocate_shared_memory(b.dtype, [STAGES] + b.block_shape, b.layout)
    scales = a_tiles
    if OF_BLOCKS:
        scales = gl.allocate_shared_memory(gl.float32, [STAGES] + scale_a.block_shape, scale_a.layout)
    upper = gl.allocate_shared_memory(out.dtype, out.block_shape, out.layout)
    lower = gl.allocate_shared_memory(out.dtype, out.block_shape, out.layout)
    free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(free.index(stage), count=2)  # both groups have read it
        mbarrier.init(full.index(stage), count=1)
    fence_async_shared()
    gl.warp_specialize(
        [
            (multiply, (a_tiles, b_tiles, scales, upper, out, scale_a, scale_b, partials, arrived, free, full, M, N, K,
                        stride_sbn, stride_sbk, shared, group_m,
                        0, BLOCK_M, BLOCK_N, BLOCK_K, STAGES, SHARED, OF_BLOCKS)),
            (multiply, (a_tiles, b_tiles, scales, lower, out, scale_a, scale_b, partials, arrived, free, full, M, N, K,
                        stride_sbn, stride_sbk, shared, group_m,
                        1, BLOCK_M, BLOCK_N, BLOCK_K, STAGES, SHARED, OF_BLOCKS)),
            (fetch, (a, b, scale_a, a_tiles, b_tiles, scales, free, full, M, N, K, stride_sak, shared, group_m,
                     BLOCK_M, BLOCK_N, BLOCK_K, STAGES, SHARED, OF_BLOCKS)),
        ],
        [4, 1],
        [240, 24],  # registers of a thread; the first group gets the rest of 65,536, 248 for each thread
    )  # fmt: skip


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
