"""Variant `tiles`: a program for each tile, through pointers. It runs on any card that multiplies 8-bit floats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton
import triton.language as tl

from tuner.kernels.scaled_gemm.factors import compiled_in, factors
from tuner.kernels.scaled_gemm.scales import added, scales_of
from tuner.kernels.scaled_gemm.space import swapped
from tuner.kernels.shared.products import corner_of, joined, multiple, multiple_up
from tuner.kernels.shared.tiling import tile_count, vector_elements
from tuner.kernels.spec import Launch, Problem


@triton.jit(do_not_specialize=["group_m"])
def scaled_tiles(
    a, b, out, scale_a, scale_b, partials, arrived, M, N, K,
    stride_am, stride_bn, stride_om, stride_on,
    stride_sam, stride_sak, stride_sbn, stride_sbk, group_m,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr,
    WHOLE_K: tl.constexpr, A_VEC: tl.constexpr, B_VEC: tl.constexpr, OUT_M_VEC: tl.constexpr, OUT_N_VEC: tl.constexpr,
    SHARE_A: tl.constexpr, SHARE_B: tl.constexpr, IMPRECISE: tl.constexpr,
):  # fmt: skip
    """Compute a tile, or a slice of it along K. b is given as its rows (N, K), as it lies.

    Rows of a and b are a multiple of A_VEC and B_VEC elements apart, and as many are loaded at once. If K is not a
    multiple, the factor is a copy whose padding is zero. Rows of out, or its columns if the factors are swapped, are a
    multiple of OUT_N_VEC, or OUT_M_VEC, elements apart.
    """
    slot = tl.program_id(0)
    first_m, first_n = corner_of(slot // SPLIT_K, M, N, group_m, BLOCK_M, BLOCK_N)
    steps = tl.cdiv(K, BLOCK_K)
    first = steps * (slot % SPLIT_K) // SPLIT_K
    end = steps * (slot % SPLIT_K + 1) // SPLIT_K

    # Rows past the end wrap around: their loads stay in bounds without a mask, and are not stored.
    m = ((first_m + tl.arange(0, BLOCK_M)) % M).to(tl.int64)
    n = ((first_n + tl.arange(0, BLOCK_N)) % N).to(tl.int64)
    k = tl.arange(0, BLOCK_K)
    a_tile = a + m[:, None] * multiple(stride_am, A_VEC) + k[None, :]
    b_tile = b + n[:, None] * multiple(stride_bn, B_VEC) + k[None, :]
    if SPLIT_K > 1:
        a_tile += first * BLOCK_K
        b_tile += first * BLOCK_K

    # Scales are loaded a step ahead, so that the products of a step do not wait for them.
    at_a = scales_of(scale_a, first_m, M, stride_sam, SHARE_A, BLOCK_M, 0)
    at_b = scales_of(scale_b, first_n, N, stride_sbn, SHARE_B, BLOCK_N, 1)
    block = first * BLOCK_K // 128
    by_a, by_b = tl.load(at_a + block * stride_sak), tl.load(at_b + block * stride_sbk)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(first, end):
        if WHOLE_K:
            a_rows, b_rows = tl.load(a_tile), tl.load(b_tile)
        else:
            left_of_a = multiple_up(K, A_VEC) - step * BLOCK_K
            left_of_b = multiple_up(K, B_VEC) - step * BLOCK_K
            a_rows = tl.load(a_tile, mask=k[None, :] < left_of_a, other=0.0)
            b_rows = tl.load(b_tile, mask=k[None, :] < left_of_b, other=0.0)
        acc = added(acc, a_rows, b_rows, by_a, by_b, SHARE_A > 0, IMPRECISE)
        if SHARE_A > 0:
            block = min(step + 1, end - 1) * BLOCK_K // 128
            by_a, by_b = tl.load(at_a + block * stride_sak), tl.load(at_b + block * stride_sbk)
        a_tile += BLOCK_K
        b_tile += BLOCK_K

    done = True
    if SPLIT_K > 1:
        acc, done = joined(acc, partials, arrived, slot, SPLIT_K, BLOCK_M, BLOCK_N)
    if done:
        if SHARE_A == 0:
            acc *= by_a * by_b
        row = first_m + tl.arange(0, BLOCK_M)
        column = first_n + tl.arange(0, BLOCK_N)
        of_row = row.to(tl.int64)[:, None] * multiple(stride_om, OUT_N_VEC)
        place = out + of_row + column.to(tl.int64)[None, :] * multiple(stride_on, OUT_M_VEC)
        there = (row < multiple(M, OUT_M_VEC))[:, None] & (column < multiple(N, OUT_N_VEC))[None, :]
        tl.store(place, acc.to(out.dtype.element_ty), mask=there)


def tiles(problem: Problem, config: Mapping[str, Any], tensors: Mapping[str, Any]) -> Launch:
    left, right = factors(problem, config, tensors)
    is_swapped = swapped(config)
    out, K = tensors["out"], problem["K"]
    pointers = (left.matrix, right.matrix, out, left.scales, right.scales)
    summing = (tensors.get("partials"), tensors.get("arrived"))
    out_strides = [out.stride(dim) for dim in ((1, 0) if is_swapped else (0, 1))]
    strides = (left.stride, right.stride, *out_strides, *left.scale_strides, *right.scale_strides)
    out_vecs = (vector_elements(out), 1) if is_swapped else (1, vector_elements(out))
    return Launch(
        scaled_tiles,
        grid=(tile_count(problem, config) * config["SPLIT_K"],),
        args=(*pointers, *summing, left.count, right.count, K, *strides, config["GROUP_M"]),
        kwargs={
            **compiled_in(problem, config, left, right),
            "WHOLE_K": K % config["BLOCK_K"] == 0,
            "A_VEC": vector_elements(left.matrix, is_t=is_swapped),
            "B_VEC": vector_elements(right.matrix, is_t=not is_swapped),
            **dict(zip(("OUT_M_VEC", "OUT_N_VEC"), out_vecs, strict=True)),
        },
    )
