"""A row in many blocks, each of a program of its own: read once and written once."""

from __future__ import annotations

import triton
import triton.language as tl

from tuner.kernels.shared.products import multiple
from tuner.kernels.spec import next_power_of_2  # noqa: F401  the source hash covers it: softmax_shared has the name


@triton.jit
def softmax_shared(
    x, out, started, arrived, found, M, N, stride_x, stride_out,
    BLOCK_N: tl.constexpr, PARTS: tl.constexpr, ALIGN: tl.constexpr,
):  # fmt: skip
    """Compute one of PARTS blocks of a row; the programs of a row exchange maximum and sum through memory.

    No program waits for one that cannot start: a program takes its row when it starts, so the programs of all rows
    before are running or have ended. Rows are multiples of ALIGN elements long and apart.
    """
    N, stride_x, stride_out = multiple(N, ALIGN), multiple(stride_x, ALIGN), multiple(stride_out, ALIGN)
    ticket = tl.atomic_add(started, 1, sem="relaxed")
    if ticket == M * PARTS - 1:  # the last program
        tl.store(started, 0)
    row, part = (ticket // PARTS).to(tl.int64), ticket % PARTS
    n = part * BLOCK_N + tl.arange(0, BLOCK_N)
    values = tl.load(x + row * stride_x + n, mask=n < N, other=-float("inf")).to(tl.float32)
    top = tl.max(values, axis=0)
    values = tl.exp(values - tl.where(top == -float("inf"), 0.0, top))
    mine = found + (row * PARTS + part) * 2
    tl.store(mine, top)
    tl.store(mine + 1, tl.sum(values, axis=0))

    tl.debug_barrier()  # both are written before one thread counts the program
    tl.atomic_add(arrived + row, 1, sem="release")
    while tl.atomic_add(arrived + row, 0, sem="acquire") < PARTS:
        pass
    tl.debug_barrier()
    parts = tl.arange(0, triton.next_power_of_2(PARTS))
    others = found + (row * PARTS + parts) * 2
    tops = tl.load(others, mask=parts < PARTS, other=-float("inf"), cache_modifier=".cg")
    totals = tl.load(others + 1, mask=parts < PARTS, other=0.0, cache_modifier=".cg")
    row_top = tl.max(tops, axis=0)
    shift = tl.where(row_top == -float("inf"), 0.0, row_top)
    row_total = tl.sum(totals * tl.exp(tops - shift), axis=0)
    if tl.atomic_add(arrived + row, 1, sem="acq_rel") == 2 * PARTS - 1:  # all have read
        tl.store(arrived + row, 0)

    # A part of -inf only was not shifted, and stays 0.
    values = values * tl.where(top == -float("inf"), 0.0, tl.exp(top - shift)) / row_total
    tl.store(out + row * stride_out + n, values.to(out.dtype.element_ty), mask=n < N)
