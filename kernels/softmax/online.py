"""A row in many blocks of one program: read twice and written once."""

from __future__ import annotations

import triton
import triton.language as tl

from tuner.kernels.shared.products import multiple


@triton.jit
def softmax_online(
    x, out, M, N, stride_x, stride_out,
    BLOCK_N: tl.constexpr, ROWS: tl.constexpr, STAGES: tl.constexpr, ALIGN: tl.constexpr,
):  # fmt: skip
    """Compute rows of many blocks: one pass for maximum and sum, a second pass to write.

    Rows are multiples of ALIGN elements long and apart.
    """
    N, stride_x, stride_out = multiple(N, ALIGN), multiple(stride_x, ALIGN), multiple(stride_out, ALIGN)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    in_rows = (row < M)[:, None]
    row = row.to(tl.int64)[:, None]
    n = tl.arange(0, BLOCK_N)
    x += row * stride_x
    out += row * stride_out

    # Each lane keeps the maximum and the sum of its own columns; they are joined once, after the loop.
    # A lane that has read only -inf keeps a shift of 0, so that exp(-inf - shift) is 0 and not NaN.
    top = tl.full((ROWS, BLOCK_N), -float("inf"), tl.float32)
    total = tl.zeros((ROWS, BLOCK_N), tl.float32)
    for start in tl.range(0, N, BLOCK_N, num_stages=STAGES):
        column = start + n[None, :]
        values = tl.load(x + column, mask=in_rows & (column < N), other=-float("inf")).to(tl.float32)
        new_top = tl.maximum(top, values)
        shift = tl.where(new_top == -float("inf"), 0.0, new_top)
        total = total * tl.exp(top - shift) + tl.exp(values - shift)
        top = new_top
    row_top = tl.max(top, axis=1)[:, None]
    shift = tl.where(row_top == -float("inf"), 0.0, row_top)
    row_total = tl.sum(total * tl.exp(top - shift), axis=1)[:, None]

    # Backwards: the end of the row was read last, and is most likely in L2.
    for start in tl.range(0, N, BLOCK_N, num_stages=STAGES):
        column = (tl.cdiv(N, BLOCK_N) - 1) * BLOCK_N - start + n[None, :]
        mask = in_rows & (column < N)
        values = tl.load(x + column, mask=mask, other=-float("inf")).to(tl.float32)
        values = tl.exp(values - row_top) / row_total
        tl.store(out + column, values.to(out.dtype.element_ty), mask=mask)
