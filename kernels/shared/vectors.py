"""A product with few rows or columns, computed by the threads themselves.

The product moves M K + K N + M N elements and does 2 M N K operations. With M = 1 that is one product and one sum for
each element of b, so reading b is all the time. Tensor cores would compute a tile of 16 rows, of which 15 are missing,
from operands in shared memory; here each thread multiplies what it loads in registers.
"""

from __future__ import annotations

import triton
import triton.language as tl

from tuner.kernels.shared.products import finished, multiple, wrapped


@triton.jit
def read(tile, there, WHOLE_K: tl.constexpr, ONCE: tl.constexpr):
    """Load values as fp32; values that are read ONCE are evicted from the cache first, so that others stay there."""
    LEAVES: tl.constexpr = "evict_first" if ONCE else ""
    if WHOLE_K:
        values = tl.load(tile, eviction_policy=LEAVES)
    else:
        values = tl.load(tile, mask=there, other=0.0, eviction_policy=LEAVES)
    return values.to(tl.float32)


@triton.jit
def thread_sums(products, RUN: tl.constexpr, THREADS: tl.constexpr):
    """Return the sum of each of THREADS threads along K over its runs of RUN products (rows, columns, depth)."""
    ROWS: tl.constexpr = products.shape[0]
    COLUMNS: tl.constexpr = products.shape[1]
    DEPTH: tl.constexpr = products.shape[2]
    runs = tl.reshape(products, (ROWS, COLUMNS, DEPTH // (RUN * THREADS), THREADS, RUN))
    return tl.sum(tl.sum(runs, axis=4), axis=2)


@triton.jit
def gemm_vectors(
    a, b, out, bias, scale_a, scale_b, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_om, stride_on,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, WHOLE_K: tl.constexpr,
    RUN: tl.constexpr, THREADS: tl.constexpr, A_ONCE: tl.constexpr, B_ONCE: tl.constexpr,
    B_IS_WIDER: tl.constexpr, A_IS_T: tl.constexpr, B_IS_T: tl.constexpr, A_VEC: tl.constexpr, B_VEC: tl.constexpr,
    ACTIVATION: tl.constexpr,
):  # fmt: skip
    """Multiply what each thread loads and add it up; the threads' sums are added once, after the loop.

    Products are exact in fp32. 8-bit floats have one scale for each factor. Contiguous rows of a and b are a multiple
    of A_VEC and B_VEC elements long and apart, and as many are loaded at once. The compiler derives alignment from
    arguments that are multiples of 16, so strides and ends are written as multiples here.
    """
    A_ALONG_M: tl.constexpr = A_VEC if A_IS_T else 1
    A_ALONG_K: tl.constexpr = 1 if A_IS_T else A_VEC
    B_ALONG_K: tl.constexpr = B_VEC if B_IS_T else 1
    B_ALONG_N: tl.constexpr = 1 if B_IS_T else B_VEC
    tiles_m = tl.cdiv(M, BLOCK_M)
    first_m = tl.program_id(0) % tiles_m * BLOCK_M
    first_n = tl.program_id(0) // tiles_m * BLOCK_N
    m = wrapped(first_m, M, BLOCK_M, A_ALONG_M)[:, None, None]
    n = wrapped(first_n, N, BLOCK_N, B_ALONG_N)[None, :, None]
    k = tl.arange(0, BLOCK_K)[None, None, :]
    stride_am, stride_ak = multiple(stride_am, A_ALONG_K), multiple(stride_ak, A_ALONG_M)
    stride_bk, stride_bn = multiple(stride_bk, B_ALONG_N), multiple(stride_bn, B_ALONG_K)
    a_tile = a + m * stride_am + k * stride_ak
    b_tile = b + n * stride_bn + k * stride_bk

    acc = tl.zeros((BLOCK_M, BLOCK_N, THREADS), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        in_a, in_b = k < multiple(K, A_ALONG_K) - start, k < multiple(K, B_ALONG_K) - start
        if B_IS_WIDER:  # Triton multiplies in the layout of the second load, which is the wider factor's
            a_values = read(a_tile, in_a, WHOLE_K, A_ONCE)
            b_values = read(b_tile, in_b, WHOLE_K, B_ONCE)
        else:
            b_values = read(b_tile, in_b, WHOLE_K, B_ONCE)
            a_values = read(a_tile, in_a, WHOLE_K, A_ONCE)
        acc += thread_sums(a_values * b_values, RUN, THREADS)
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk

    row = first_m + tl.arange(0, BLOCK_M)
    column = first_n + tl.arange(0, BLOCK_N)
    sums = tl.sum(acc, axis=2)
    if scale_a is not None:
        sums *= tl.load(scale_a) * tl.load(scale_b)
    sums = finished(sums, bias, column, N, ACTIVATION, out.dtype.element_ty)
    place = out + row.to(tl.int64)[:, None] * stride_om + column.to(tl.int64)[None, :] * stride_on
    tl.store(place, sums.to(out.dtype.element_ty), mask=(row < M)[:, None] & (column < N)[None, :])
