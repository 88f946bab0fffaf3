"""GEMM, from products on the CUDA cores to a pipelined tile on the tensor cores.

4096 x 4096 x 4096 bf16 is 137 GFLOP on 100 MB. Copied, those bytes would take an H200 24 us; multiplied by cuBLAS they
take 180 us (2026-11-27): the tensor cores are the limit as long as data arrives in time. But a program that computes a
BLOCK_M x BLOCK_N tile reads (BLOCK_M + BLOCK_N) K elements for it, so all programs together read
2 M N K (1 / BLOCK_M + 1 / BLOCK_N) bytes: 8.6 GB in tiles of 32 x 32, 2.1 GB in tiles of 128 x 128, 1.6 GB in tiles of
128 x 256. Most of that comes from L2, and a program waits for all of it unless copies and products overlap.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ladder.step import Ladder, Run, Step, Tensors, configured
from tuner.kernels.gemm import KERNEL
from tuner.kernels.spec import Launch, Problem, Value, cdiv

BLOCK = 32


@triton.jit
def outer_products(a, b, out, M, N, K, stride_a, stride_b, stride_out, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Sum a tile from K products of a column of a with a row of b. Each product loads BLOCK_M + BLOCK_N elements, waits
    for them, and does BLOCK_M BLOCK_N multiply-adds on the CUDA cores, since tensor cores multiply matrices only."""
    m = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    n = (tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    a += m * stride_a
    b += n
    for _ in range(K):
        column = tl.load(a, mask=m < M, other=0.0).to(tl.float32)
        row = tl.load(b, mask=n < N, other=0.0).to(tl.float32)
        acc += column[:, None] * row[None, :]
        a += 1
        b += stride_b
    mask = (m < M)[:, None] & (n < N)[None, :]
    tl.store(out + m[:, None] * stride_out + n[None, :], acc.to(out.dtype.element_ty), mask=mask)


def simple(problem: Problem, tensors: Tensors) -> tuple[Run, ...]:
    """Launch `outer_products` with a program for each tile, for contiguous a and b."""
    M, N, K = problem.sizes
    a, b, out = tensors["a"], tensors["b"], tensors["out"]
    args = (a, b, out, M, N, K, a.stride(0), b.stride(0), out.stride(0))
    kwargs = {"BLOCK_M": BLOCK, "BLOCK_N": BLOCK, "num_warps": 4, "num_stages": 1}
    return (Launch(outer_products, (cdiv(M, BLOCK), cdiv(N, BLOCK)), args, kwargs),)


SMALL = {"BLOCK_M": BLOCK, "BLOCK_N": BLOCK, "BLOCK_K": 32, "num_warps": 4, "GROUP_M": 1, "num_stages": 1}
TILED = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "num_warps": 8, "GROUP_M": 1, "num_stages": 1}
GROUPED = TILED | {"GROUP_M": 8}
PIPELINED = GROUPED | {"num_stages": 4}
WIDE = GROUPED | {"BLOCK_N": 256, "num_stages": 3}
PERSISTENT: dict[str, Value] = WIDE | {"VARIANT": "persistent"}

LADDER = Ladder(
    kernel=KERNEL,
    problems=(KERNEL.signature.problem({"M": 4096}),),
    steps=(
        Step("simple", "32 x 32 tiles, one k a step, on the CUDA cores", simple),
        configured("tensor cores", "32 k a step, multiplied by tl.dot", KERNEL, SMALL),
        configured("tiled", "128 x 128 x 64 tiles: a quarter of the reads", KERNEL, TILED),
        configured("grouped", "tiles in groups of 8 rows", KERNEL, GROUPED),
        configured("pipelined", "the next 3 steps in flight", KERNEL, PIPELINED),
        configured("wide", "128 x 256 tiles, 2 steps in flight", KERNEL, WIDE),
        configured(
            "persistent", "a program a multiprocessor, fed by the copy engine", KERNEL, PERSISTENT, since=(9, 0)
        ),
    ),
    unit="TFLOP/s",
)
