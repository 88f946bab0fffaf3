"""Variant `persistent`: a program for each multiprocessor, through tensor descriptors; from Hopper on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton
import triton.language as tl

from tuner.kernels.gemm.arguments import compiled_in, described
from tuner.kernels.gemm.space import precision, sliced_tiles
from tuner.kernels.shared.product_rows import transposed
from tuner.kernels.shared.products import corner_of, finished, joined
from tuner.kernels.shared.tiling import tile_count
from tuner.kernels.spec import Launch, Problem


@triton.jit
def summed(
    a, b, first_m, first_n, first, end,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    A_IS_T: tl.constexpr, B_IS_T: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Return a tile's sum over the steps from `first` to `end` along K."""
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(first, end):
        k = step * BLOCK_K
        a_tile = a.load([k, first_m]).T if A_IS_T else a.load([first_m, k])
        b_tile = b.load([first_n, k]).T if B_IS_T else b.load([k, first_n])
        acc = tl.dot(a_tile, b_tile, acc, input_precision=PRECISION)
    return acc


@triton.jit
def stored(acc, out, first_m, first_n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STORES: tl.constexpr):
    """Store a tile at once, or in halves, which leaves more shared memory to the stages."""
    if STORES == 1:
        out.store([first_m, first_n], acc.to(out.dtype))
    else:
        halves = tl.permute(tl.reshape(acc, (BLOCK_M, 2, BLOCK_N // 2)), (0, 2, 1))
        left, right = tl.split(halves)
        out.store([first_m, first_n], left.to(out.dtype))
        out.store([first_m, first_n + BLOCK_N // 2], right.to(out.dtype))


@triton.jit(do_not_specialize=["whole", "group_m"])
def gemm_persistent(
    a, b, out, bias, partials, arrived, M, N, K, whole, group_m,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr,
    STORES: tl.constexpr, A_IS_T: tl.constexpr, B_IS_T: tl.constexpr,
    PRECISION: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    """Compute one tile after the other.

    The copy engine (TMA) computes the addresses and fills in zeros past the edges, so that threads keep their registers
    for the accumulators. The loops over tiles and steps are flattened into one: the loads of the next tile begin while
    this one ends.

    The tiles after the first `whole`, fewer than there are programs, are cut into SPLIT_K slices along K, one for each
    program. Without slices, a last wave would keep few multiprocessors busy for as long as a full one. Stream-K (Osama
    et al., 2023) is a more general remedy.
    """
    steps = tl.cdiv(K, BLOCK_K)
    column = tl.arange(0, BLOCK_N)
    for tile in tl.range(tl.program_id(0), whole, tl.num_programs(0), flatten=True):
        first_m, first_n = corner_of(tile, M, N, group_m, BLOCK_M, BLOCK_N)
        acc = summed(a, b, first_m, first_n, 0, steps, BLOCK_M, BLOCK_N, BLOCK_K, A_IS_T, B_IS_T, PRECISION)
        acc = finished(acc, bias, first_n + column, N, ACTIVATION, out.dtype)
        stored(acc, out, first_m, first_n, BLOCK_M, BLOCK_N, STORES)

    if SPLIT_K > 1:
        slot = tl.program_id(0)
        tile = whole + slot // SPLIT_K
        if tile < tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N):
            first_m, first_n = corner_of(tile, M, N, group_m, BLOCK_M, BLOCK_N)
            first = steps * (slot % SPLIT_K) // SPLIT_K
            end = steps * (slot % SPLIT_K + 1) // SPLIT_K
            acc = summed(a, b, first_m, first_n, first, end, BLOCK_M, BLOCK_N, BLOCK_K, A_IS_T, B_IS_T, PRECISION)
            acc, done = joined(acc, partials, arrived, slot, SPLIT_K, BLOCK_M, BLOCK_N)
            if done:
                acc = finished(acc, bias, first_n + column, N, ACTIVATION, out.dtype)
                stored(acc, out, first_m, first_n, BLOCK_M, BLOCK_N, STORES)


def persistent(problem: Problem, config: Mapping[str, Any], tensors: Mapping[str, Any]) -> Launch:
    M, N, K = problem.sizes
    a_is_t, b_is_t = transposed(problem)
    block_m, block_n, block_k = config["BLOCK_M"], config["BLOCK_N"], config["BLOCK_K"]
    descriptors = (
        described(tensors["a"], (M, K), (block_m, block_k), is_t=a_is_t),
        described(tensors["b"], (K, N), (block_k, block_n), is_t=b_is_t),
        described(tensors["out"], (M, N), (block_m, block_n // config["STORES"])),
    )
    summing = [tensors.get(name) for name in ("bias", "partials", "arrived")]
    programs = tensors["arrived"].shape[0]
    sliced = sliced_tiles(problem, config, programs)
    whole = tile_count(problem, config) - sliced
    return Launch(
        gemm_persistent,
        grid=(min(programs, max(whole, sliced * config["SPLIT_K"])),),
        args=(*descriptors, *summing, *problem.sizes, whole, config["GROUP_M"]),
        kwargs=compiled_in(problem, config, "SPLIT_K", "STORES")
        | {"PRECISION": precision(problem), "A_IS_T": a_is_t, "B_IS_T": b_is_t},
    )
