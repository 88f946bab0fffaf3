"""A scaled product by warps with roles of their own: where tensor cores must not keep a sum for long, on Hopper.

A sum that leaves them every 128 products is added up by the threads, which meanwhile issue none. In one group of warps
the two take turns. Two groups that wait for nothing but their operands fall out of step by themselves: one adds while
the other one multiplies. (To hand the tensor cores over by barriers takes a fifth longer; to hold two steps' products,
so that one group does both at once, takes more registers than there are. H200, 2026-11-28.)
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from tuner.kernels.device import tma
from tuner.kernels.device.gemm_parts import corner_of
from tuner.kernels.device.gemm_specialized import (
    fetch,
    joined,
    leave,
    piece_of,
    pieces_of,
    put,
    tell,
    wait_for_other,
)
from tuner.kernels.device.gemm_specialized import sums_layout as gemms_layout


@gluon.constexpr_function
def sums_layout(columns):
    """Where the four warps of a group hold a sum of so many columns: as wgmma leaves that of 8-bit floats."""
    return gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, columns, 32])


@gluon.jit
def promoted(acc, a, b, by_a, by_b, OF_BLOCKS: gl.constexpr):
    """A sum and one step's products more, which leave the tensor cores here.

    The sum is waited for, though nothing is under way, so that it is up to date before more products are issued: else
    those of two steps would be held beside it.
    """
    products = warpgroup_mma(a, b.permute((1, 0)), gl.zeros_like(acc), use_acc=False, is_async=True)
    products = warpgroup_mma_wait(0, deps=[products])
    acc += products * gl.expand_dims(by_a * by_b, 1) if OF_BLOCKS else products
    return warpgroup_mma_wait(0, deps=[acc])


@gluon.jit
def scales_at(block, at_a, at_b, at_rest, stride_sak, stride_sbk):
    """The scales of a block along K: of a's rows, and of b's first and second 128 columns."""
    return (
        gl.load(at_a + block * stride_sak),
        gl.load(at_b + block * stride_sbk),
        gl.load(at_rest + block * stride_sbk),
    )


@gluon.jit
def left_or_whole(
    acc, partials, column, begun, ends,
    GROUP: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr,
):  # fmt: skip
    """128 columns of a sum with what the program before left of them; where they do not end here, left in turn."""
    as_gemms = gl.convert_layout(acc, gemms_layout(128), assert_trivial=True)
    if begun:
        as_gemms = joined(as_gemms, partials, column, GROUP, BLOCK_M, BLOCK_N)
    if not ends:
        leave(as_gemms, partials, column, GROUP, BLOCK_M, BLOCK_N)
    return gl.convert_layout(as_gemms, acc.type.layout, assert_trivial=True)


@gluon.jit
def multiply(
    a_tiles, b_tiles, staging, out, scale_a, scale_b, partials, arrived, free, full, M, N, K,
    stride_sam, stride_sak, stride_sbn, stride_sbk, shared, group_m,
    GROUP: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, STAGES: gl.constexpr,
    SHARED: gl.constexpr, OF_BLOCKS: gl.constexpr,
):  # fmt: skip
    """The upper or the lower half of every tile, 128 columns at a time.

    Scales are on their way for three steps: all programs are at the same block, so that each has to come from memory.
    """
    ROWS: gl.constexpr = BLOCK_M // 2
    sums: gl.constexpr = sums_layout(128)
    steps = gl.cdiv(K, BLOCK_K)
    step = 0
    for nth_piece in range(pieces_of(gl.cdiv(M, BLOCK_M) * gl.cdiv(N, BLOCK_N), shared, steps, SHARED)):
        tile, first, end = piece_of(nth_piece, shared, steps, SHARED)
        m, n = corner_of(tile, M, N, group_m, BLOCK_M, BLOCK_N)
        m += GROUP * ROWS
        at_a = scale_a
        if OF_BLOCKS:
            at_a = scale_a + ((m + gl.arange(0, ROWS, gl.SliceLayout(1, sums))) % M).to(gl.int64) * stride_sam
        at_b = scale_b + n // 128 * stride_sbn
        at_rest = scale_b + min(n // 128 + 1, gl.cdiv(N, 128) - 1) * stride_sbn
        by_a, by_b, by_rest = scales_at(first, at_a, at_b, at_rest, stride_sak, stride_sbk)
        if OF_BLOCKS:
            block = min(first + 1, end - 1)
            next_a, next_b, next_rest = scales_at(block, at_a, at_b, at_rest, stride_sak, stride_sbk)
            block = min(first + 2, end - 1)
            third_a, third_b, third_rest = scales_at(block, at_a, at_b, at_rest, stride_sak, stride_sbk)
        acc = gl.zeros((ROWS, 128), gl.float32, sums)
        rest = gl.zeros((ROWS, 128), gl.float32, sums)
        for nth in range(first, end):
            stage = step % STAGES
            mbarrier.wait(full.index(stage), step // STAGES % 2)
            a = a_tiles.index(stage).slice(GROUP * ROWS, ROWS, 0)
            b = b_tiles.index(stage)
            acc = promoted(acc, a, b.slice(0, 128, 0), by_a, by_b, OF_BLOCKS)
            if BLOCK_N == 256:
                rest = promoted(rest, a, b.slice(128, 128, 0), by_a, by_rest, OF_BLOCKS)
            mbarrier.arrive(free.index(stage))
            if OF_BLOCKS:
                by_a, by_b, by_rest = next_a, next_b, next_rest
                next_a, next_b, next_rest = third_a, third_b, third_rest
                block = min(nth + 3, end - 1)
                third_a, third_b, third_rest = scales_at(block, at_a, at_b, at_rest, stride_sak, stride_sbk)
            step += 1

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
                acc *= by_a * by_b
                rest *= by_a * by_b
            put(acc, out, staging, m, n, 1)
            if BLOCK_N == 256:
                put(rest, out, staging, m, n + 128, 1)
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["shared", "group_m"])
def scaled_specialized(
    a, b, out, scale_a, scale_b, partials, arrived, M, N, K,
    stride_sam, stride_sak, stride_sbn, stride_sbk, shared, group_m,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, STAGES: gl.constexpr,
    SHARED: gl.constexpr, OF_BLOCKS: gl.constexpr,
):  # fmt: skip
    """Persistent, with b as its rows (N, K), which `fetch` reads as gemm's does.

    SHARED, the steps along K of all tiles are cut into an even share for each program, as gemm's stream_k cuts some.
    """
    a_tiles = gl.allocate_shared_memory(a.dtype, [STAGES] + a.block_shape, a.layout)
    b_tiles = gl.allocate_shared_memory(b.dtype, [STAGES] + b.block_shape, b.layout)
    upper = gl.allocate_shared_memory(out.dtype, out.block_shape, out.layout)
    lower = gl.allocate_shared_memory(out.dtype, out.block_shape, out.layout)
    free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(free.index(stage), count=2)  # both groups are done with it
        mbarrier.init(full.index(stage), count=1)
    fence_async_shared()
    gl.warp_specialize(
        [
            (multiply, (a_tiles, b_tiles, upper, out, scale_a, scale_b, partials, arrived, free, full, M, N, K,
                        stride_sam, stride_sak, stride_sbn, stride_sbk, shared, group_m,
                        0, BLOCK_M, BLOCK_N, BLOCK_K, STAGES, SHARED, OF_BLOCKS)),
            (multiply, (a_tiles, b_tiles, lower, out, scale_a, scale_b, partials, arrived, free, full, M, N, K,
                        stride_sam, stride_sak, stride_sbn, stride_sbk, shared, group_m,
                        1, BLOCK_M, BLOCK_N, BLOCK_K, STAGES, SHARED, OF_BLOCKS)),
            (fetch, (a, b, None, a_tiles, b_tiles, b_tiles, free, full,
                     M, N, K, shared, group_m, BLOCK_M, BLOCK_N, BLOCK_K, STAGES, False, True, SHARED)),
        ],
        [4, 1],
        [240, 24],  # of 65,536 registers; the first group gets the 248 a thread that this leaves
    )  # fmt: skip
