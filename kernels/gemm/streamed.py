"""Variant `streamed`: up to sixteen rows, with b loaded straight into the registers that multiply it.

With M rows, the product reads K N elements of b and M K of a, so nearly all bytes are of b, each read once. Loads by
threads can say so, and leave the cache to a; Triton's asynchronous copies drop that hint. So b needs no shared memory,
barriers and second read, and a, which all programs read, is copied asynchronously. Gluon leaves the assignment of
elements to threads to the kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import mma_v2

from tuner.kernels.gemm.arguments import compiled_in
from tuner.kernels.shared import async_copy
from tuner.kernels.shared.products import finished
from tuner.kernels.spec import Launch, Problem, cdiv


@gluon.constexpr_function
def sums_layout(warps):
    """Return the layout of the sums: each warp has its own, over its part of each step."""
    return gl.NVMMADistributedLayout(version=[2, 0], warps_per_cta=[warps, 1, 1], instr_shape=[1, 16, 8])


@gluon.constexpr_function
def doublings(first, end):
    """Return first, 2 first, 4 first and so on, below end."""
    return [first << n for n in range((end // first).bit_length() - 1)]


@gluon.constexpr_function
def factor_layout(rows, depth, warps):
    """Return the layout of a factor (warps, rows, depth): a thread holds 8 neighbours along K, a warp 8 rows of 32."""
    along_k = doublings(1, 8) + doublings(32, depth)
    registers = [[0, 0, k] for k in along_k] + [[0, row, 0] for row in doublings(8, rows)]
    lanes = [[0, 0, k] for k in doublings(8, 32)] + [[0, row, 0] for row in doublings(1, 8)]
    own = [[warp, 0, 0] for warp in doublings(1, warps)]
    return gl.DistributedLinearLayout(registers, lanes, own, [], [warps, rows, depth])


@gluon.jit
def offsets(rows: gl.constexpr, depth: gl.constexpr, layout: gl.constexpr):
    """Return the rows (1, rows, 1) and the places along K (warps, 1, depth) of elements in a layout."""
    warp = gl.arange(0, gl.num_warps(), gl.SliceLayout(1, gl.SliceLayout(2, layout)))[:, None, None]
    row = gl.arange(0, rows, gl.SliceLayout(0, gl.SliceLayout(2, layout)))[None, :, None]
    k = gl.arange(0, depth, gl.SliceLayout(0, gl.SliceLayout(1, layout)))[None, None, :]
    return row, warp * depth + k


@gluon.jit
def as_factor(values, WHICH: gl.constexpr):
    """Return loaded values (warps, rows, depth) as a factor for the tensor cores, with K in the same order in both.

    Of 32 neighbours along K, thread t holds the 8 from 8 t on. Two products of depth 16 take those from 2 t and from
    8 + 2 t on. No value changes its thread.
    """
    WARPS: gl.constexpr = values.shape[0]
    ROWS: gl.constexpr = values.shape[1]
    DEPTH: gl.constexpr = values.shape[2]
    split = gl.reshape(values, (WARPS, ROWS, DEPTH // 32, 4, 2, 2, 2))
    if WHICH == 0:
        ordered = gl.reshape(gl.permute(split, (0, 1, 2, 4, 5, 3, 6)), (WARPS, ROWS, DEPTH))
    else:
        ordered = gl.reshape(gl.permute(split, (0, 2, 4, 5, 3, 6, 1)), (WARPS, DEPTH, ROWS))
    return gl.convert_layout(ordered, gl.DotOperandLayout(WHICH, sums_layout(WARPS), 2))


@gluon.jit
def fetch_a(tile, step, stages, there, k, K, BLOCK_K: gl.constexpr, STAGES: gl.constexpr):
    async_copy.async_copy_global_to_shared(
        stages.index(step % STAGES), tile + step * BLOCK_K, mask=there & (k < K - step * BLOCK_K)
    )
    async_copy.commit_group()


@gluon.jit
def load_b(tile, step, k, K, BLOCK_K: gl.constexpr):
    there = k < K - step * BLOCK_K
    return gl.load(tile + step * BLOCK_K, mask=there, other=0.0, eviction_policy="evict_first")


@gluon.jit
def add_products(acc, stages, step, b, LAYOUT: gl.constexpr, STAGES: gl.constexpr):
    async_copy.wait_group(STAGES - 1)
    a = stages.index(step % STAGES).load(LAYOUT)
    return mma_v2(as_factor(a, 0), as_factor(b, 1), acc)


@gluon.jit
def gemm_streamed(
    a, b, out, bias, M, N, eighths, am_eighths, bn_eighths, stride_om, stride_on,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, STAGES: gl.constexpr,
    ACTIVATION: gl.constexpr, num_warps: gl.constexpr,
):  # fmt: skip
    """Compute all rows, and BLOCK_N columns for each program.

    Rows of a and columns of b lie along K, each aligned to 16 bytes. K and their strides are given in eighths, so that
    the compiler knows the alignment. Two steps of b are in registers: one is multiplied while the other is loaded. They
    are two variables, since moving a register waits for its load.
    """
    K = eighths * 8
    DEPTH: gl.constexpr = BLOCK_K // num_warps
    A: gl.constexpr = factor_layout(BLOCK_M, DEPTH, num_warps)
    B: gl.constexpr = factor_layout(BLOCK_N, DEPTH, num_warps)
    LANES: gl.constexpr = min(32, DEPTH // 8)
    COPIED: gl.constexpr = gl.BlockedLayout([1, 1, 8], [1, 32 // LANES, LANES], [num_warps, 1, 1], [2, 1, 0])
    first_n = gl.program_id(0) * BLOCK_N

    # Columns past the end are replaced by the last one: their loads stay in bounds, and they are not stored. Rows of a
    # past the end are not read: copies of one row by all programs at once would wait for each other.
    n, bk = offsets(BLOCK_N, DEPTH, B)
    b_tile = b + gl.minimum(first_n + n, N - 1).to(gl.int64) * bn_eighths * 8 + bk
    b_even = load_b(b_tile, 0, bk, K, BLOCK_K)
    m, ak = offsets(BLOCK_M, DEPTH, COPIED)
    a_tile = a + m.to(gl.int64) * am_eighths * 8 + ak
    swizzled: gl.constexpr = gl.SwizzledSharedLayout(8, 1, min(8, DEPTH // 8), [2, 1, 0])
    stages = gl.allocate_shared_memory(a.dtype.element_ty, [STAGES, num_warps, BLOCK_M, DEPTH], swizzled)
    for step in gl.static_range(STAGES - 1):
        fetch_a(a_tile, step, stages, m < M, ak, K, BLOCK_K, STAGES)

    acc = gl.zeros((num_warps, BLOCK_M, BLOCK_N), gl.float32, sums_layout(num_warps))
    for step in range(0, gl.cdiv(K, BLOCK_K), 2):
        b_odd = load_b(b_tile, step + 1, bk, K, BLOCK_K)
        fetch_a(a_tile, step + STAGES - 1, stages, m < M, ak, K, BLOCK_K, STAGES)
        acc = add_products(acc, stages, step, b_even, A, STAGES)
        b_even = load_b(b_tile, step + 2, bk, K, BLOCK_K)
        fetch_a(a_tile, step + STAGES, stages, m < M, ak, K, BLOCK_K, STAGES)
        acc = add_products(acc, stages, step + 1, b_odd, A, STAGES)
    async_copy.wait_group(0)

    STORED: gl.constexpr = gl.BlockedLayout([1, 2], [64 // BLOCK_N, BLOCK_N // 2], [num_warps, 1], [1, 0])
    column = first_n + gl.arange(0, BLOCK_N, gl.SliceLayout(0, STORED))
    row = gl.arange(0, BLOCK_M, gl.SliceLayout(1, STORED))
    sums = gl.convert_layout(gl.sum(acc, axis=0), STORED)
    sums = finished(sums, bias, column, N, ACTIVATION, out.dtype.element_ty)
    place = out + row.to(gl.int64)[:, None] * stride_om + column.to(gl.int64)[None, :] * stride_on
    gl.store(place, sums.to(out.dtype.element_ty), mask=(row < M)[:, None] & (column < N)[None, :])


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
