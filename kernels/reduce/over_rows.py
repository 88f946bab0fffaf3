"""Device code that reduces over rows: to one result for each column."""

from __future__ import annotations

import triton
import triton.language as tl

from tuner.kernels.reduce.states import (
    all_joined,
    empty,
    finished,
    first_larger,
    first_place,
    joined,
    larger,
    leave,
    left,
    neutral,
    state_of,
)
from tuner.kernels.shared.arrivals import is_last


@triton.jit
def reduce_over_rows(
    x, out, indices, arrived, firsts, seconds, M, N, stride,
    KIND: tl.constexpr, INDEX: tl.constexpr, RUN: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, DEPTH: tl.constexpr, SPLIT: tl.constexpr, PARTS: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Reduce BLOCK_N columns, in steps of DEPTH * BLOCK_M rows that SPLIT programs take in turn.

    Each thread joins the DEPTH rows of its columns first, which it reads at once. The last program joins PARTS states
    of each column at once. N and stride count runs of RUN columns, each of which is one access.
    """
    STEP: tl.constexpr = DEPTH * BLOCK_M
    NEUTRAL: tl.constexpr = neutral(KIND)
    N *= RUN
    stride = tl.cast(stride, tl.int64) * RUN
    tiles = tl.cdiv(N, BLOCK_N)
    tile, part = tl.program_id(0) % tiles, tl.program_id(0) // tiles
    n = tile * BLOCK_N + tl.arange(0, BLOCK_N)
    lane = tl.arange(0, BLOCK_M)[:, None]

    EMPTY: tl.constexpr = empty(KIND)
    first = tl.full((BLOCK_M, BLOCK_N), EMPTY, tl.float32)
    second = tl.full((BLOCK_M, BLOCK_N), 0, tl.int32) + part * STEP + lane if INDEX else tl.zeros_like(first)
    for start in tl.range(part * STEP, M, SPLIT * STEP, num_stages=STAGES):
        m = (start + tl.arange(0, STEP))[:, None]
        mask = (m < M) & (n < N)[None, :]
        values = tl.load(x + m.to(tl.int64) * stride + n[None, :], mask=mask, other=NEUTRAL).to(tl.float32)
        if KIND == "min":
            values = -values
        values = tl.reshape(values, (DEPTH, BLOCK_M, BLOCK_N))
        if INDEX:
            rows = tl.reshape(tl.broadcast_to(m, (STEP, BLOCK_N)), (DEPTH, BLOCK_M, BLOCK_N))
            some_first = tl.reduce(values, 0, larger)
            some_second = first_place(values, rows, some_first, 0, 2**31 - 1)
        else:
            some_first, some_second = state_of(values, 0, KIND)
        first, second = joined(first, second, some_first, some_second, KIND, INDEX)
    if INDEX:
        second = second.to(tl.int64)
    first, second = all_joined(first, second, 0, KIND, INDEX)

    is_mine = True
    if SPLIT > 1:
        width = tl.cast(N, tl.int64)
        leave(firsts, seconds, part * width + n, n < N, first, second, KIND, INDEX)
        is_mine = is_last(arrived + tile, SPLIT)
        if is_mine:
            all_first = tl.full((PARTS, BLOCK_N), EMPTY, tl.float32)
            all_second = tl.full((PARTS, BLOCK_N), 2**62, tl.int64) if INDEX else tl.zeros_like(all_first)
            for start in range(0, SPLIT, PARTS):
                parts = (start + tl.arange(0, PARTS))[:, None]
                mask = (parts < SPLIT) & (n < N)[None, :]
                some_first, some_second = left(firsts, seconds, parts * width + n[None, :], mask, KIND, INDEX)
                if INDEX:
                    all_first, all_second = first_larger(all_first, all_second, some_first, some_second)
                else:
                    all_first, all_second = joined(all_first, all_second, some_first, some_second, KIND, INDEX)
            first, second = all_joined(all_first, all_second, 0, KIND, INDEX)
    if is_mine:
        tl.store(out + n, finished(first, second, tl.cast(M, tl.float32), KIND).to(out.dtype.element_ty), mask=n < N)
        if INDEX:
            tl.store(indices + n, second, mask=n < N)
