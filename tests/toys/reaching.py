"""Kernels that load, store and add as far as they are told."""

import triton
import triton.language as tl


@triton.jit
def copies(x, out, N, BLOCK: tl.constexpr):
    n = tl.arange(0, BLOCK)
    tl.store(out + n, tl.load(x + n, mask=n < N, other=0.0), mask=n < N)


@triton.jit
def adds(x, out, N, BLOCK: tl.constexpr):
    n = tl.arange(0, BLOCK)
    tl.atomic_add(out + n, tl.load(x + n % N), mask=n < N)
