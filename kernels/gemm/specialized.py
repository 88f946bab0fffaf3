"""Variants `specialized` and `stream_k`: warps with roles, for Hopper. One warp loads, two groups of four multiply.

In the other variants each warp waits for the loads and issues the products. Here no copy waits for a product to be
issued, no product waits for an address, and the two groups store independently. Gluon leaves layouts, barriers and the
order of instructions to the kernel, and allows tiles of 192 columns; Triton's tiles are powers of two.
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

from tuner.kernels.gemm.arguments import compiled_in, described
from tuner.kernels.gemm.space import shared_tiles, transposed
from tuner.kernels.shared import tma
from tuner.kernels.shared.products import corner_of, finished
from tuner.kernels.shared.stream_k import (
    joined,
    leave,
    piece_of,
    pieces_of,
    put,
    sums_layout,
    tell,
    wait_for_other,
)
from tuner.kernels.shared.tiling import tile_count
from tuner.kernels.spec import Launch, Problem


@gluon.jit
def fetch(
    a, b, b_rest, a_tiles, b_tiles, b_rest_tiles, free, full, M, N, K, shared, group_m,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, STAGES: gl.constexpr,
    A_IS_T: gl.constexpr, B_IS_T: gl.constexpr, STREAM_K: gl.constexpr,
):  # fmt: skip
    """Keep STAGES steps of a and b in flight, across tiles; the barriers `full` count arrived bytes."""
    WIDE: gl.constexpr = b_tiles.shape[1] if B_IS_T else b_tiles.shape[2]
    steps = gl.cdiv(K, BLOCK_K)
    step = 0
    for nth in range(pieces_of(gl.cdiv(M, BLOCK_M) * gl.cdiv(N, BLOCK_N), shared, steps, STREAM_K)):
        tile, first, end = piece_of(nth, shared, steps, STREAM_K)
        m, n = corner_of(tile, M, N, group_m, BLOCK_M, BLOCK_N)
        for k in range(first * BLOCK_K, end * BLOCK_K, BLOCK_K):
            stage = step % STAGES
            arrived = full.index(stage)
            mbarrier.wait(free.index(stage), step // STAGES % 2 ^ 1)
            mbarrier.expect(arrived, (BLOCK_M + BLOCK_N) * BLOCK_K * (a.dtype.primitive_bitwidth // 8))
            tma.async_copy_global_to_shared(a, [k, m] if A_IS_T else [m, k], arrived, a_tiles.index(stage))
            tma.async_copy_global_to_shared(b, [n, k] if B_IS_T else [k, n], arrived, b_tiles.index(stage))
            if WIDE < BLOCK_N:
                rest = [n + WIDE, k] if B_IS_T else [k, n + WIDE]
                tma.async_copy_global_to_shared(b_rest, rest, arrived, b_rest_tiles.index(stage))
            step += 1


@gluon.jit
def multiply(
    a_tiles, b_tiles, b_rest_tiles, staging, staging_rest, out, out_rest, bias, partials, arrived, free, full,
    M, N, K, shared, group_m,
    GROUP: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, STAGES: gl.constexpr,
    STORES: gl.constexpr, A_IS_T: gl.constexpr, B_IS_T: gl.constexpr, STREAM_K: gl.constexpr,
    ACTIVATION: gl.constexpr,
):  # fmt: skip
    """Compute the upper or lower half of each tile; one product runs while the next one is issued."""
    ROWS: gl.constexpr = BLOCK_M // 2
    WIDE: gl.constexpr = b_tiles.shape[1] if B_IS_T else b_tiles.shape[2]
    REST: gl.constexpr = BLOCK_N - WIDE
    steps = gl.cdiv(K, BLOCK_K)
    step = 0
    for nth in range(pieces_of(gl.cdiv(M, BLOCK_M) * gl.cdiv(N, BLOCK_N), shared, steps, STREAM_K)):
        tile, first, end = piece_of(nth, shared, steps, STREAM_K)
        m, n = corner_of(tile, M, N, group_m, BLOCK_M, BLOCK_N)
        m += GROUP * ROWS
        acc = gl.zeros((ROWS, WIDE), gl.float32, sums_layout(WIDE))
        if REST > 0:
            acc_rest = gl.zeros((ROWS, REST), gl.float32, sums_layout(REST))
        for k in range(first, end):
            stage = step % STAGES
            mbarrier.wait(full.index(stage), step // STAGES % 2)
            if A_IS_T:
                a = a_tiles.index(stage).slice(GROUP * ROWS, ROWS, 1).permute((1, 0))
            else:
                a = a_tiles.index(stage).slice(GROUP * ROWS, ROWS, 0)
            b = b_tiles.index(stage).permute((1, 0)) if B_IS_T else b_tiles.index(stage)
            acc = warpgroup_mma(a, b, acc, use_acc=k > first, is_async=True)
            if REST > 0:
                b = b_rest_tiles.index(stage).permute((1, 0)) if B_IS_T else b_rest_tiles.index(stage)
                acc_rest = warpgroup_mma(a, b, acc_rest, use_acc=k > first, is_async=True)
                acc, acc_rest = warpgroup_mma_wait(2, deps=[acc, acc_rest])
            else:
                acc = warpgroup_mma_wait(1, deps=[acc])
            # All products but the newest are complete, so the step before is no longer read.
            mbarrier.arrive(free.index((step + STAGES - 1) % STAGES), pred=k > first)
            step += 1
        if REST > 0:
            acc, acc_rest = warpgroup_mma_wait(0, deps=[acc, acc_rest])
        else:
            acc = warpgroup_mma_wait(0, deps=[acc])
        mbarrier.arrive(free.index((step + STAGES - 1) % STAGES))

        if STREAM_K:
            if first > 0:  # the program before this one has the steps up to `first`
                wait_for_other(arrived, GROUP)
                acc = joined(acc, partials, 0, GROUP, BLOCK_M, BLOCK_N)
                if REST > 0:
                    acc_rest = joined(acc_rest, partials, WIDE, GROUP, BLOCK_M, BLOCK_N)
        if end == steps:
            column = n + gl.arange(0, WIDE, gl.SliceLayout(0, sums_layout(WIDE)))
            put(finished(acc, bias, column, N, ACTIVATION), out, staging, m, n, STORES)
            if REST > 0:
                column = n + WIDE + gl.arange(0, REST, gl.SliceLayout(0, sums_layout(REST)))
                put(finished(acc_rest, bias, column, N, ACTIVATION), out_rest, staging_rest, m, n + WIDE, 1)
        elif STREAM_K:
            leave(acc, partials, 0, GROUP, BLOCK_M, BLOCK_N)
            if REST > 0:
                leave(acc_rest, partials, WIDE, GROUP, BLOCK_M, BLOCK_N)
            tell(arrived, GROUP)
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["shared", "group_m"])
def gemm_specialized(
    a, b, b_rest, out, out_rest, bias, partials, arrived, M, N, K, shared, group_m,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, STAGES: gl.constexpr, STORES: gl.constexpr,
    A_IS_T: gl.constexpr, B_IS_T: gl.constexpr, STREAM_K: gl.constexpr, ACTIVATION: gl.constexpr,
):  # fmt: skip
    """Start the roles of a persistent program. 192 columns are 128 and a rest of 64, each with its own descriptors.

    With STREAM_K the first `shared` tiles, more than there are programs, are cut along K into an even share for each
    program, so that no last wave keeps few multiprocessors busy (Osama et al., "Stream-K", 2023). A program may wait
    for the one before it. So all programs run at once, one for each multiprocessor; or, if others use the card, they
    start in the order of their numbers, as on each card so far, though CUDA does not guarantee it.
    """
    a_tiles = gl.allocate_shared_memory(a.dtype, [STAGES] + a.block_shape, a.layout)
    b_tiles = gl.allocate_shared_memory(b.dtype, [STAGES] + b.block_shape, b.layout)
    upper = gl.allocate_shared_memory(out.dtype, out.block_shape, out.layout)
    lower = gl.allocate_shared_memory(out.dtype, out.block_shape, out.layout)
    b_rest_tiles, upper_rest, lower_rest = b_tiles, upper, lower
    if b_rest is not None:
        b_rest_tiles = gl.allocate_shared_memory(b.dtype, [STAGES] + b_rest.block_shape, b_rest.layout)
        upper_rest = gl.allocate_shared_memory(out.dtype, out_rest.block_shape, out_rest.layout)
        lower_rest = gl.allocate_shared_memory(out.dtype, out_rest.block_shape, out_rest.layout)
    free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(free.index(stage), count=2)  # both groups have read it
        mbarrier.init(full.index(stage), count=1)
    fence_async_shared()
    gl.warp_specialize(
        [
            (multiply, (a_tiles, b_tiles, b_rest_tiles, upper, upper_rest, out, out_rest, bias, partials, arrived,
                        free, full, M, N, K, shared, group_m, 0, BLOCK_M, BLOCK_N, BLOCK_K, STAGES, STORES,
                        A_IS_T, B_IS_T, STREAM_K, ACTIVATION)),
            (multiply, (a_tiles, b_tiles, b_rest_tiles, lower, lower_rest, out, out_rest, bias, partials, arrived,
                        free, full, M, N, K, shared, group_m, 1, BLOCK_M, BLOCK_N, BLOCK_K, STAGES, STORES,
                        A_IS_T, B_IS_T, STREAM_K, ACTIVATION)),
            (fetch, (a, b, b_rest, a_tiles, b_tiles, b_rest_tiles, free, full,
                     M, N, K, shared, group_m, BLOCK_M, BLOCK_N, BLOCK_K, STAGES, A_IS_T, B_IS_T, STREAM_K)),
        ],
        [4, 1],
        [224, 24],  # registers of a thread; the first group gets the rest of 65,536, 256 for each thread
    )  # fmt: skip


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
    """Return the powers of 2 whose sum is the number of columns: 128 and 64 of 192; a power of 2 and 0 otherwise."""
    wide = 1 << columns.bit_length() - 1
    return wide, columns - wide
