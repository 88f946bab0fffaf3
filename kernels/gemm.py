"""Matrix product: out (M, N) = a (M, K) @ b (K, N), accumulated in fp32.

A GEMM does 2 M N K operations on M K + K N + M N elements, so for large sizes the tensor cores should be the
limit and memory should not. A program that computes a BLOCK_M x BLOCK_N tile of the output reads
(BLOCK_M + BLOCK_N) K elements to do 2 BLOCK_M BLOCK_N K operations: larger tiles read less, until the accumulators
no longer fit the registers, or until there are fewer tiles than multiprocessors. Everything else is about hiding
the latency of those reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton
import triton.language as tl

from tuner.kernels.spec import (
    Attribute,
    Config,
    Dim,
    Kernel,
    Knob,
    Launch,
    Limits,
    Operand,
    Problem,
    Signature,
    Value,
    cdiv,
    itemsize,
    next_power_of_2,
)


@triton.jit(do_not_specialize=["group_m"])
def gemm_kernel(
    a, b, out, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_om, stride_on,
    group_m,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    WHOLE_K: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    # Programs run roughly in order of their id. Walking `group_m` rows of tiles column by column keeps the rows
    # of a and the columns of b that running programs share in L2, where a row-by-row walk would stream all of b.
    pid = tl.program_id(0)
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    group_size = group_m * tiles_n
    first_m = pid // group_size * group_m
    rows = min(tiles_m - first_m, group_m)
    pid_m = first_m + pid % group_size % rows
    pid_n = pid % group_size // rows

    # Rows past the end wrap around: their loads stay in bounds without a mask in the loop, and are never stored.
    # 64-bit offsets: one matrix may hold more than 2^31 elements.
    m = ((pid_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M).to(tl.int64)
    n = ((pid_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N).to(tl.int64)
    k = tl.arange(0, BLOCK_K)
    a += m[:, None] * stride_am + k[None, :] * stride_ak
    b += k[:, None] * stride_bk + n[None, :] * stride_bn

    # The loop that num_stages pipelines: while the tensor cores work on one step, the next num_stages - 1 steps
    # are on their way from device memory into shared memory.
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(tl.cdiv(K, BLOCK_K)):
        if WHOLE_K:
            a_tile = tl.load(a)
            b_tile = tl.load(b)
        else:
            left = K - step * BLOCK_K
            a_tile = tl.load(a, mask=k[None, :] < left, other=0.0)
            b_tile = tl.load(b, mask=k[:, None] < left, other=0.0)
        acc = tl.dot(a_tile, b_tile, acc, input_precision=PRECISION)
        a += BLOCK_K * stride_ak
        b += BLOCK_K * stride_bk

    m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    out += m.to(tl.int64)[:, None] * stride_om + n.to(tl.int64)[None, :] * stride_on
    tl.store(out, acc.to(out.dtype.element_ty), mask=(m < M)[:, None] & (n < N)[None, :])


def operands(problem: Problem) -> Mapping[str, Operand]:
    """a (M, K), b (K, N), out (M, N). A `t` in the layout: that input is the transpose of a contiguous matrix."""
    M, N, K = problem.sizes
    a_is_t, b_is_t = (letter == "t" for letter in problem["layout"])
    return {
        "a": Operand((M, K), problem.dtype, strides=(1, M) if a_is_t else (K, 1)),
        "b": Operand((K, N), problem.dtype, strides=(1, K) if b_is_t else (N, 1)),
        "out": Operand((M, N), problem.dtype, role="out"),
    }


def launch(problem: Problem, config: Config, tensors: Mapping[str, Any]) -> tuple[Launch, ...]:
    M, N, K = problem.sizes
    if M == 0 or N == 0:
        return ()
    a, b, out = tensors["a"], tensors["b"], tensors["out"]
    strides = [tensor.stride(dim) for tensor in (a, b, out) for dim in (0, 1)]
    return (
        Launch(
            gemm_kernel,
            grid=(cdiv(M, config["BLOCK_M"]) * cdiv(N, config["BLOCK_N"]),),
            args=(a, b, out, M, N, K, *strides, config["GROUP_M"]),
            kwargs={
                "BLOCK_M": config["BLOCK_M"],
                "BLOCK_N": config["BLOCK_N"],
                "BLOCK_K": config["BLOCK_K"],
                "WHOLE_K": K % config["BLOCK_K"] == 0,
                "PRECISION": dict(problem.attributes).get("precision", "ieee"),
                "num_warps": config["num_warps"],
                "num_stages": config["num_stages"],
            },
        ),
    )


def reference(problem: Problem, tensors: Mapping[str, Any], rows: slice) -> Mapping[str, Any]:
    """In fp32 for 16-bit inputs (their products are exact there) and in fp64 for fp32 ones."""
    a, b = tensors["a"][rows], tensors["b"]
    return {"out": a.double() @ b.double() if problem.dtype == "fp32" else a.float() @ b.float()}


def vendor(problem: Problem, tensors: Mapping[str, Any]) -> object:
    """`torch.matmul`: cuBLAS."""
    import torch

    matmul = torch.backends.cuda.matmul
    before, matmul.allow_tf32 = matmul.allow_tf32, dict(problem.attributes).get("precision") == "tf32"
    try:
        return torch.matmul(tensors["a"], tensors["b"], out=tensors["out"])
    finally:
        matmul.allow_tf32 = before


def stage_bytes(problem: Problem, config: Mapping[str, Any]) -> int:
    """Shared memory that one step's tiles of a and b take."""
    return (config["BLOCK_M"] + config["BLOCK_N"]) * config["BLOCK_K"] * itemsize(problem.dtype)


def valid(problem: Problem, config: Config, limits: Limits) -> bool:
    M, N, K = problem.sizes
    block_m, block_n, block_k = config["BLOCK_M"], config["BLOCK_N"], config["BLOCK_K"]
    threads = config["num_warps"] * limits.warp_size
    # Hopper's wgmma takes its operands from shared memory, so the step in use stays there beside those on their
    # way; older instructions copy it to registers first and need one buffer less.
    wgmma = limits.capability[0] == 9 and block_m >= 64 and config["num_warps"] >= 4
    buffers = config["num_stages"] - (0 if wgmma else 1)
    return (
        # A tile larger than the matrix computes rows that nobody reads.
        block_m <= max(16, next_power_of_2(M))
        and block_n <= max(16, next_power_of_2(N))
        and block_k <= max(32, next_power_of_2(K))
        # Steps along K are 32-bit offsets, and one down a column crosses whole rows. (Along M and N they are 64-bit.)
        and block_k * max(M, N) < 2**31
        # 16-wide tiles starve the tensor cores; they are for matrices with few rows.
        and (min(block_m, block_n) > 16 or min(M, N) <= 64)
        # Grouping more rows of tiles than there are changes nothing.
        and config["GROUP_M"] <= next_power_of_2(cdiv(M, block_m))
        # The fp32 accumulators live in registers, beside at least something else: a tile that fills or spills
        # them is refused by ptxas or compiles for minutes.
        and block_m * block_n < min(threads * limits.registers_per_thread, limits.registers_per_sm)
        # Enough of the tile for each warp to own one 16 x 8 tensor-core tile.
        and block_m * block_n >= config["num_warps"] * 16 * 8
        and buffers * stage_bytes(problem, config) <= limits.shared_bytes
        and threads <= limits.threads_per_block
    )


def default(problem: Problem, limits: Limits) -> Mapping[str, Value]:
    """The largest tile that still gives every multiprocessor one, and up to 5 steps of about 24 KB in flight.

    Measured on an H200, 2026-11-27: 0.995 of the best of 3,048 configs at 4096^3 bf16 and 0.896 of the best of 248 at
    16 x 4096 x 4096, where a rule of 64-deep steps had 0.93 and 0.58.
    """
    M, N, K = problem.sizes
    block_m = min(128, max(16, next_power_of_2(M)))
    block_n = min(256, max(16, next_power_of_2(N)))
    while cdiv(M, block_m) * cdiv(N, block_n) < limits.sm_count and max(block_m, block_n) > 32:
        block_m, block_n = (block_m // 2, block_n) if block_m > block_n else (block_m, block_n // 2)
    block_k = 256
    while block_k > 32 and (
        (block_m + block_n) * block_k * itemsize(problem.dtype) > 24 * 1024 or block_k * max(M, N) >= 2**31
    ):
        block_k //= 2
    config = {
        "BLOCK_M": block_m,
        "BLOCK_N": block_n,
        "BLOCK_K": min(block_k, max(32, next_power_of_2(K))),
        "GROUP_M": max(rows for rows in (1, 4, 8) if rows <= next_power_of_2(cdiv(M, block_m))),
        "num_warps": 8 if block_m * block_n > 128 * 128 else 4 if block_m * block_n > 16 * 16 else 2,
    }
    return {**config, "num_stages": min(5, max(2, limits.shared_bytes // stage_bytes(problem, config)))}


def rounding(problem: Problem) -> float:
    """tf32 keeps 10 bits of a product's factors; cuBLAS does not always use it where it may (1 x 1 x 1)."""
    return 2.0**-10 if dict(problem.attributes).get("precision") == "tf32" else 0.0


def flops(problem: Problem) -> int:
    M, N, K = problem.sizes
    return 2 * M * N * K


KERNEL = Kernel(
    signature=Signature(
        op="gemm",
        summary="matrix product out (M, N) = a (M, K) @ b (K, N)",
        dims=(
            Dim("M", help="rows of a and out"),
            Dim("N", default="M", help="columns of b and out"),
            Dim("K", default="M", help="columns of a, rows of b"),
        ),
        dtypes=("bf16", "fp16", "fp32"),
        attributes=(
            Attribute("layout", ("nn", "nt", "tn"), "nn", help="which of a, b is a transposed view (t)"),
            Attribute("precision", ("ieee", "tf32"), "ieee", help="how fp32 products are made", dtypes=("fp32",)),
        ),
        knobs=(
            Knob("BLOCK_M", (16, 32, 64, 128, 256), "rows of the output tile a program computes"),
            Knob("BLOCK_N", (16, 32, 64, 128, 256), "columns of that tile"),
            Knob("BLOCK_K", (32, 64, 128, 256), "depth of one step of the loop over K"),
            Knob("GROUP_M", (1, 4, 8, 16), "rows of tiles walked together, for reuse in L2; not compiled in"),
            Knob("num_warps", (2, 4, 8, 16), "warps that share a tile and its accumulators"),
            Knob("num_stages", (2, 3, 4, 5, 6), "steps of the loop in flight between device and shared memory"),
        ),
    ),
    operands=operands,
    launch=launch,
    reference=reference,
    vendor=vendor,
    valid=valid,
    default=default,
    flops=flops,
    rounding=rounding,
)
