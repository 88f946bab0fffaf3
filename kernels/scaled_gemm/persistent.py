"""Variant `persistent`: one or two programs for each multiprocessor, through tensor descriptors; from Hopper on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from tuner.kernels.scaled_gemm.factors import compiled_in, factors
from tuner.kernels.scaled_gemm.scales import added, scales_of
from tuner.kernels.scaled_gemm.space import swapped
from tuner.kernels.shared.products import corner_of, joined
from tuner.kernels.shared.tiling import tile_count
from tuner.kernels.spec import Launch, Problem


@triton.jit(do_not_specialize=["slots", "group_m"])
def scaled_persistent(
    a, b, out, scale_a, scale_b, partials, arrived, M, N, K,
    stride_sam, stride_sak, stride_sbn, stride_sbk, slots, group_m,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr,
    SWAPPED: tl.constexpr, SHARE_A: tl.constexpr, SHARE_B: tl.constexpr, IMPRECISE: tl.constexpr,
):  # fmt: skip
    """Compute one tile or slice after the other.

    The copy engine computes the addresses and fills in zeros past the edges. The loops over tiles and steps are
    flattened into one: the loads of the next tile begin while this one ends.
    """
    steps = tl.cdiv(K, BLOCK_K)
    for slot in tl.range(tl.program_id(0), slots, tl.num_programs(0), flatten=True):
        first_m, first_n = corner_of(slot // SPLIT_K, M, N, group_m, BLOCK_M, BLOCK_N)
        first = steps * (slot % SPLIT_K) // SPLIT_K
        end = steps * (slot % SPLIT_K + 1) // SPLIT_K
        at_a = scales_of(scale_a, first_m, M, stride_sam, SHARE_A, BLOCK_M, 0)
        at_b = scales_of(scale_b, first_n, N, stride_sbn, SHARE_B, BLOCK_N, 1)
        block = first * BLOCK_K // 128
        by_a, by_b = tl.load(at_a + block * stride_sak), tl.load(at_b + block * stride_sbk)

        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for step in range(first, end):
            k = step * BLOCK_K
            a_rows = a.load([first_m, k])
            acc = added(acc, a_rows, b.load([first_n, k]), by_a, by_b, SHARE_A > 0, IMPRECISE)
            if SHARE_A > 0:
                block = min(step + 1, end - 1) * BLOCK_K // 128
                by_a, by_b = tl.load(at_a + block * stride_sak), tl.load(at_b + block * stride_sbk)

        done = True
        if SPLIT_K > 1:
            acc, done = joined(acc, partials, arrived, slot, SPLIT_K, BLOCK_M, BLOCK_N)
        if done:
            if SHARE_A == 0:
                acc *= by_a * by_b
            if SWAPPED:
                out.store([first_n, first_m], acc.T.to(out.dtype))
            else:
                out.store([first_m, first_n], acc.to(out.dtype))


def persistent(problem: Problem, config: Mapping[str, Any], tensors: Mapping[str, Any]) -> Launch:
    left, right = factors(problem, config, tensors)
    out, K, block_k = tensors["out"], problem["K"], config["BLOCK_K"]
    described = (
        TensorDescriptor(*left.lies(K, block_k)),
        TensorDescriptor(*right.lies(K, block_k)),
        TensorDescriptor(out, list(problem.sizes[:2]), [out.stride(0), 1], [config["BLOCK_M"], config["BLOCK_N"]]),
    )
    summing = (left.scales, right.scales, tensors.get("partials"), tensors["arrived"])
    slots = tile_count(problem, config) * config["SPLIT_K"]
    strides = (*left.scale_strides, *right.scale_strides)
    return Launch(
        scaled_persistent,
        grid=(min(tensors["arrived"].shape[0], slots),),
        args=(*described, *summing, left.count, right.count, K, *strides, slots, config["GROUP_M"]),
        kwargs=compiled_in(problem, config, left, right) | {"SWAPPED": swapped(config)},
    )
