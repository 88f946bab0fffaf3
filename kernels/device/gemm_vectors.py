"""A product with few rows or columns, by the threads themselves: where the reading of one matrix is all the time."""

from __future__ import annotations

import triton
import triton.language as tl

from tuner.kernels.device.gemm_parts import finished


@triton.jit
def gemm_vectors(
    a, b, out, bias, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_om, stride_on,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    WHOLE_K: tl.constexpr, STAGES: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    """Every thread multiplies what it loads and keeps a sum of its own; they are added up once, after the loop.

    A tensor core wants its operands in shared memory and 16 rows of them. Where there are fewer, the way through
    shared memory costs more than the products, which are exact in fp32 here.
    """
    tiles_m = tl.cdiv(M, BLOCK_M)
    first_m = tl.program_id(0) % tiles_m * BLOCK_M
    first_n = tl.program_id(0) // tiles_m * BLOCK_N
    # Rows past the end wrap around, as in every variant: in bounds without a mask, and never stored.
    m = ((first_m + tl.arange(0, BLOCK_M)) % M).to(tl.int64)[:, None, None]
    n = ((first_n + tl.arange(0, BLOCK_N)) % N).to(tl.int64)[None, :, None]
    k = tl.arange(0, BLOCK_K)[None, None, :]
    a_tile = a + m * stride_am + k * stride_ak
    b_tile = b + n * stride_bn + k * stride_bk

    acc = tl.zeros((BLOCK_M, BLOCK_N, BLOCK_K), dtype=tl.float32)
    for start in tl.range(0, K, BLOCK_K, num_stages=STAGES):
        if WHOLE_K:
            acc += tl.load(a_tile).to(tl.float32) * tl.load(b_tile).to(tl.float32)
        else:
            left = K - start
            a_values = tl.load(a_tile, mask=k < left, other=0.0).to(tl.float32)
            acc += a_values * tl.load(b_tile, mask=k < left, other=0.0).to(tl.float32)
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk

    row = first_m + tl.arange(0, BLOCK_M)
    column = first_n + tl.arange(0, BLOCK_N)
    sums = finished(tl.sum(acc, axis=2), bias, column, N, ACTIVATION)
    place = out + row.to(tl.int64)[:, None] * stride_om + column.to(tl.int64)[None, :] * stride_on
    tl.store(place, sums.to(out.dtype.element_ty), mask=(row < M)[:, None] & (column < N)[None, :])
