"""Device code that reduces along rows: to one result for each row, or to one for the whole matrix."""

from __future__ import annotations

import triton
import triton.language as tl

from tuner.kernels.reduce.states import (
    all_joined,
    empty,
    finished,
    first_place,
    joined,
    leave,
    left,
    neutral,
    state_of,
)
from tuner.kernels.shared.arrivals import is_last


@triton.jit
def values_at(
    x, first_row, start, M, N, stride,
    KIND: tl.constexpr, RUN: tl.constexpr, ALIGN: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Load a tile as fp32, negated for min, and neutral outside of the matrix.

    ALIGN: if not 0, rows begin at any element. Columns then count from the multiple of ALIGN elements at or before a
    row's first element, so that each run of RUN columns is one access. What lies beside the row is of its neighbours,
    and left out; the run at the end of the last row is not read, since what follows may be no memory.
    """
    NEUTRAL: tl.constexpr = neutral(KIND)
    row = (first_row + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    n = start + tl.arange(0, BLOCK_N)[None, :]
    if ALIGN:
        at = x + row * stride // ALIGN * ALIGN + n
        inside = False
        if BLOCK_M == 1:  # blocks of several rows are few, and pipelined without a branch
            inside = (start >= ALIGN) & (start + BLOCK_N <= N) & (first_row < M)
        if inside:
            values = tl.load(at)
        else:
            shift = (row * stride % ALIGN).to(tl.int32)
            end = tl.where(row < M, shift + N, 0)
            read_to = tl.where(row < M - 1, end + (RUN - 1), end)
            values = tl.load(at, mask=(n // RUN + 1) * RUN <= read_to, other=NEUTRAL)
            beside = tl.full((1, 1), NEUTRAL, tl.float32).to(x.dtype.element_ty)
            values = tl.where((n >= shift) & (n < end), values, beside)
    else:
        values = tl.load(x + row * stride + n, mask=(row < M) & (n < N), other=NEUTRAL)
    values = values.to(tl.float32)
    return -values if KIND == "min" else values


@triton.jit
def run_at(x, row, first, M, N, stride, KIND: tl.constexpr, RUN: tl.constexpr, ALIGN: tl.constexpr):
    """Load the run of RUN columns from `first` on, element by element. Return the values and their columns in the row.

    Values are as those of `values_at`; columns outside of the row are 2^31 - 1.
    """
    NEUTRAL: tl.constexpr = neutral(KIND)
    row = row.to(tl.int64)[:, None]
    shift = row * stride % ALIGN if ALIGN else row * 0
    column = first.to(tl.int64)[:, None] + tl.arange(0, RUN)[None, :] - shift
    inside = (row < M) & (column >= 0) & (column < N)
    values = tl.load(x + row * stride + column, mask=inside, other=NEUTRAL).to(tl.float32)
    return -values if KIND == "min" else values, tl.where(inside, column, 2**31 - 1)


@triton.jit
def index_of(x, row, first, top, M, N, stride, KIND: tl.constexpr, RUN: tl.constexpr, ALIGN: tl.constexpr):
    """Return the first column of a run that has the value `top`."""
    values, column = run_at(x, row, first, M, N, stride, KIND, RUN, ALIGN)
    return first_place(values, column, top, 1, 2**31 - 1)


@triton.jit
def reduce_within_rows(
    x, out, indices, arrived, firsts, seconds, M, N, stride, blocks, tiles,
    KIND: tl.constexpr, INDEX: tl.constexpr, ALL: tl.constexpr, ALIGN: tl.constexpr, RUN: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SPLIT: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Reduce tiles of BLOCK_M rows: those of the same rows, or, if ALL, of the matrix.

    SPLIT programs take them in turn. Each thread joins its runs of RUN columns, then the threads join theirs, then the
    last program joins those of all. N and stride count runs, unless ALIGN.
    """
    if not ALIGN:
        N *= RUN
        stride = tl.cast(stride, tl.int64) * RUN
    part = tl.program_id(0) % SPLIT
    first_row = tl.program_id(0) // SPLIT * BLOCK_M
    rows = first_row + tl.arange(0, BLOCK_M)

    EMPTY: tl.constexpr = empty(KIND)
    first = tl.full((BLOCK_M, BLOCK_N // RUN), EMPTY, tl.float32)
    second = tl.full((BLOCK_M, BLOCK_N // RUN), 0, tl.int32) + part if INDEX else tl.zeros_like(first)
    for tile in tl.range(part, tiles, SPLIT, num_stages=STAGES):
        top_row = tile // blocks * BLOCK_M if ALL else first_row
        start = tile % blocks * BLOCK_N if ALL else tile * BLOCK_N
        values = values_at(x, top_row, start, M, N, stride, KIND, RUN, ALIGN, BLOCK_M, BLOCK_N)
        runs = tl.reshape(values, (BLOCK_M, BLOCK_N // RUN, RUN))
        run_first, run_second = state_of(runs, 2, KIND)
        first, second = joined(first, second, run_first, tile if INDEX else run_second, KIND, INDEX)

    width = tl.cast(blocks, tl.int64) * BLOCK_N + RUN
    if INDEX:  # where the run begins, counted from the first row, or from the first of the matrix
        run = tl.arange(0, BLOCK_N // RUN)[None, :] * RUN
        if ALL:
            row = (second // blocks).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
            second = row * width + second % blocks * BLOCK_N + run
        else:
            second = second.to(tl.int64) * BLOCK_N + run
    first, second = all_joined(first, second, 1, KIND, INDEX)
    if ALIGN:
        has_end = part == 0
        if not ALL:
            has_end = has_end & (first_row + BLOCK_M >= M)
        if has_end:  # the run at the end of the last row
            end_row = M - 1 + tl.arange(0, BLOCK_M) if ALL else rows
            end_row = tl.where(end_row == M - 1, end_row, M)
            end_run = (tl.where(end_row < M, tl.cast(M - 1, tl.int64) * stride % ALIGN, 0) + N) // RUN * RUN
            values, _ = run_at(x, end_row, end_run, M, N, stride, KIND, RUN, ALIGN)
            run_first, run_second = state_of(values, 1, KIND)
            place = end_row.to(tl.int64) * width + end_run if ALL else end_run.to(tl.int64)
            first, second = joined(first, second, run_first, place if INDEX else run_second, KIND, INDEX)
    if ALL:
        first, second = all_joined(first, second, 0, KIND, INDEX)
        rows = tl.zeros((1,), tl.int32)
        first, second = first + tl.zeros((1,), tl.float32), second + tl.zeros((1,), tl.int64 if INDEX else tl.float32)

    in_rows = rows < (1 if ALL else M)
    is_mine = True
    if SPLIT > 1:
        place = rows.to(tl.int64) * SPLIT
        leave(firsts, seconds, place + part, in_rows, first, second, KIND, INDEX)
        is_mine = is_last(arrived + (0 if ALL else tl.program_id(0) // SPLIT), SPLIT)
        if is_mine:
            PARTS: tl.constexpr = triton.next_power_of_2(SPLIT)
            parts = tl.arange(0, PARTS)[None, :]
            mask = in_rows[:, None] & (parts < SPLIT)
            first, second = left(firsts, seconds, place[:, None] + parts, mask, KIND, INDEX)
            first, second = all_joined(first, second, 1, KIND, INDEX)
    if is_mine:
        count = tl.cast(M, tl.float32) * N if ALL else tl.cast(N, tl.float32)
        tl.store(out + rows, finished(first, second, count, KIND).to(out.dtype.element_ty), mask=in_rows)
        if INDEX:
            best_row = second // width if ALL else rows
            column = index_of(x, best_row, second % width, first, M, N, stride, KIND, RUN, ALIGN)
            index = best_row * N + column if ALL else column
            tl.store(indices + rows, tl.where(first == -float("inf"), 0, index), mask=in_rows)
