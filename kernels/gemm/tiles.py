"""Variant `tiles`: a program for each tile, through pointers. It runs on any card, on tensors with any strides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton
import triton.language as tl

from tuner.kernels.gemm.arguments import compiled_in, strides
from tuner.kernels.gemm.space import precision
from tuner.kernels.shared.product_rows import transposed
from tuner.kernels.shared.products import corner_of, finished, joined, multiple, multiple_up, wrapped
from tuner.kernels.shared.tiling import tile_count, vector_elements
from tuner.kernels.spec import Launch, Problem


@triton.jit(do_not_specialize=["group_m"])
def gemm_tiles(
    a, b, out, bias, partials, arrived, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_om, stride_on, group_m,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr,
    WHOLE_K: tl.constexpr, A_IS_T: tl.constexpr, B_IS_T: tl.constexpr, A_VEC: tl.constexpr, B_VEC: tl.constexpr,
    OUT_VEC: tl.constexpr, PRECISION: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    """Compute a tile, or a slice of it along K.

    Contiguous rows of a, b and out are a multiple of A_VEC, B_VEC and OUT_VEC elements apart, and as many are loaded or
    stored at once. The compiler derives alignment from arguments that are multiples of 16, so strides and ends are
    rounded to multiples here. If M, N or K is not a multiple, the factor is a copy whose padding is zero.
    """
    A_ALONG_M: tl.constexpr = A_VEC if A_IS_T else 1
    A_ALONG_K: tl.constexpr = 1 if A_IS_T else A_VEC
    B_ALONG_K: tl.constexpr = B_VEC if B_IS_T else 1
    B_ALONG_N: tl.constexpr = 1 if B_IS_T else B_VEC
    slot = tl.program_id(0)
    first_m, first_n = corner_of(slot // SPLIT_K, M, N, group_m, BLOCK_M, BLOCK_N)
    steps = tl.cdiv(K, BLOCK_K)
    first = steps * (slot % SPLIT_K) // SPLIT_K
    end = steps * (slot % SPLIT_K + 1) // SPLIT_K

    m, n = wrapped(first_m, M, BLOCK_M, A_ALONG_M), wrapped(first_n, N, BLOCK_N, B_ALONG_N)
    k = tl.arange(0, BLOCK_K)
    stride_am, stride_ak = multiple(stride_am, A_ALONG_K), multiple(stride_ak, A_ALONG_M)
    stride_bk, stride_bn = multiple(stride_bk, B_ALONG_N), multiple(stride_bn, B_ALONG_K)
    a_tile = a + m[:, None] * stride_am + k[None, :] * stride_ak
    b_tile = b + k[:, None] * stride_bk + n[None, :] * stride_bn
    if SPLIT_K > 1:
        a_tile += (first * BLOCK_K).to(tl.int64) * stride_ak
        b_tile += (first * BLOCK_K).to(tl.int64) * stride_bk

    # num_stages pipelines this loop: while the tensor cores multiply one step, the next num_stages - 1 steps are in
    # flight from device memory to shared memory.
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(first, end):
        if WHOLE_K:
            acc = tl.dot(tl.load(a_tile), tl.load(b_tile), acc, input_precision=PRECISION)
        else:
            left_of_a = multiple_up(K, A_ALONG_K) - step * BLOCK_K
            left_of_b = multiple_up(K, B_ALONG_K) - step * BLOCK_K
            acc = tl.dot(
                tl.load(a_tile, mask=k[None, :] < left_of_a, other=0.0),
                tl.load(b_tile, mask=k[:, None] < left_of_b, other=0.0),
                acc,
                input_precision=PRECISION,
            )
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk

    done = True
    if SPLIT_K > 1:
        acc, done = joined(acc, partials, arrived, slot, SPLIT_K, BLOCK_M, BLOCK_N)
    if done:
        row = first_m + tl.arange(0, BLOCK_M)
        column = first_n + tl.arange(0, BLOCK_N)
        acc = finished(acc, bias, column, N, ACTIVATION, out.dtype.element_ty)
        apart = multiple(stride_om, OUT_VEC)
        place = out + row.to(tl.int64)[:, None] * apart + column.to(tl.int64)[None, :] * stride_on
        there = (row < M)[:, None] & (column < multiple(N, OUT_VEC))[None, :]
        tl.store(place, acc.to(out.dtype.element_ty), mask=there)


def tiles(problem: Problem, config: Mapping[str, Any], tensors: Mapping[str, Any]) -> Launch:
    pointers = [tensors.get(name) for name in ("a", "b", "out", "bias", "partials", "arrived")]
    a_is_t, b_is_t = transposed(problem)
    is_t = {"a": a_is_t, "b": b_is_t, "out": False}
    vecs = {f"{name.upper()}_VEC": vector_elements(tensors[name], is_t[name]) for name in is_t}
    whole_k = problem["K"] % config["BLOCK_K"] == 0
    return Launch(
        gemm_tiles,
        grid=(tile_count(problem, config) * config["SPLIT_K"],),
        args=(*pointers, *problem.sizes, *strides(tensors), config["GROUP_M"]),
        kwargs=compiled_in(problem, config, "SPLIT_K")
        | {"PRECISION": precision(problem), "WHOLE_K": whole_k, "A_IS_T": a_is_t, "B_IS_T": b_is_t, **vecs},
    )
