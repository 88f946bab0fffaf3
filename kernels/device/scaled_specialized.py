"""A scaled product by warps with roles of their own: where tensor cores must not keep a sum for long, on Hopper.

A sum that leaves them every 128 products is added up by the threads, which meanwhile issue none. In one group of warps
the two take turns. Two groups that wait for nothing but their operands fall out of step by themselves: one adds while
the other one multiplies.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from tuner.kernels.device.gemm_parts import corner_of
from tuner.kernels.device.gemm_specialized import fetch, put


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
def multiply(
    a_tiles, b_tiles, staging, out, scale_a, scale_b, free, full, M, N, K,
    stride_sam, stride_sak, stride_sbn, stride_sbk, group_m,
    GROUP: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, STAGES: gl.constexpr,
    OF_BLOCKS: gl.constexpr,
):  # fmt: skip
    """The upper or the lower half of every tile, 128 columns at a time."""
    ROWS: gl.constexpr = BLOCK_M // 2
    sums: gl.constexpr = sums_layout(128)
    steps = gl.cdiv(K, BLOCK_K)
    step = 0
    for tile in range(gl.program_id(0), gl.cdiv(M, BLOCK_M) * gl.cdiv(N, BLOCK_N), gl.num_programs(0)):
        m, n = corner_of(tile, M, N, group_m, BLOCK_M, BLOCK_N)
        m += GROUP * ROWS
        at_a = scale_a
        if OF_BLOCKS:
            at_a = scale_a + ((m + gl.arange(0, ROWS, gl.SliceLayout(1, sums))) % M).to(gl.int64) * stride_sam
        at_b = scale_b + n // 128 * stride_sbn
        at_rest = scale_b + min(n // 128 + 1, gl.cdiv(N, 128) - 1) * stride_sbn
        by_a, by_b, by_rest = gl.load(at_a), gl.load(at_b), gl.load(at_rest)
        acc = gl.zeros((ROWS, 128), gl.float32, sums)
        rest = gl.zeros((ROWS, 128), gl.float32, sums)
        for nth in range(steps):
            stage = step % STAGES
            mbarrier.wait(full.index(stage), step // STAGES % 2)
            a = a_tiles.index(stage).slice(GROUP * ROWS, ROWS, 0)
            b = b_tiles.index(stage)
            acc = promoted(acc, a, b.slice(0, 128, 0), by_a, by_b, OF_BLOCKS)
            if BLOCK_N == 256:
                rest = promoted(rest, a, b.slice(128, 128, 0), by_a, by_rest, OF_BLOCKS)
            mbarrier.arrive(free.index(stage))
            if OF_BLOCKS:
                block = min(nth + 1, steps - 1)
                by_a, by_b = gl.load(at_a + block * stride_sak), gl.load(at_b + block * stride_sbk)
                if BLOCK_N == 256:
                    by_rest = gl.load(at_rest + block * stride_sbk)
            step += 1
        if not OF_BLOCKS:
            acc *= by_a * by_b
            rest *= by_a * by_b
        put(acc, out, staging, m, n, 1)
        if BLOCK_N == 256:
            put(rest, out, staging, m, n + 128, 1)
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["group_m"])
def scaled_specialized(
    a, b, out, scale_a, scale_b, M, N, K, stride_sam, stride_sak, stride_sbn, stride_sbk, group_m,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, STAGES: gl.constexpr, OF_BLOCKS: gl.constexpr,
):  # fmt: skip
    """Persistent, with b as its rows (N, K): `fetch` is gemm's, of which no tile is shared."""
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
            (multiply, (a_tiles, b_tiles, upper, out, scale_a, scale_b, free, full, M, N, K,
                        stride_sam, stride_sak, stride_sbn, stride_sbk, group_m,
                        0, BLOCK_M, BLOCK_N, BLOCK_K, STAGES, OF_BLOCKS)),
            (multiply, (a_tiles, b_tiles, lower, out, scale_a, scale_b, free, full, M, N, K,
                        stride_sam, stride_sak, stride_sbn, stride_sbk, group_m,
                        1, BLOCK_M, BLOCK_N, BLOCK_K, STAGES, OF_BLOCKS)),
            (fetch, (a, b, None, a_tiles, b_tiles, b_tiles, free, full,
                     M, N, K, 0, group_m, BLOCK_M, BLOCK_N, BLOCK_K, STAGES, False, True, False)),
        ],
        [4, 1],
        [240, 24],  # of 65,536 registers; the first group gets the 248 a thread that this leaves
    )  # fmt: skip
