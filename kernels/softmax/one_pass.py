"""A row in one block: read once and written once."""

from __future__ import annotations

import triton
import triton.language as tl

from tuner.kernels.shared.products import multiple


@triton.jit
def softmax_one_pass(
    x, out, M, N, stride_x, stride_out, BLOCK_N: tl.constexpr, ROWS: tl.constexpr, ALIGN: tl.constexpr
):
    """Read, reduce and write rows of one block each without leaving the registers.

    ALIGN divides the length and the strides of rows, so that as many elements are one access, and masked together.
    """
    N, stride_x, stride_out = multiple(N, ALIGN), multiple(stride_x, ALIGN), multiple(stride_out, ALIGN)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    n = tl.arange(0, BLOCK_N)
    mask = (row < M)[:, None] & (n < N)[None, :]
    row = row.to(tl.int64)[:, None]
    values = tl.load(x + row * stride_x + n[None, :], mask=mask, other=-float("inf")).to(tl.float32)
    values = tl.exp(values - tl.max(values, axis=1)[:, None])
    values = values / tl.sum(values, axis=1)[:, None]
    tl.store(out + row * stride_out + n[None, :], values.to(out.dtype.element_ty), mask=mask)
