"""Device code of pooling with rows of an image contiguous: a thread computes TILE_P x TILE_Q outputs in registers."""

from __future__ import annotations

import triton
import triton.language as tl

from tuner.kernels.shared.windows_values import (
    combined_along,
    divided,
    empty,
    put_together,
    taken_apart,
    values_of_windows,
)


@triton.jit
def row_of_windows(
    row, there, image,
    S: tl.constexpr, STRIDE_W: tl.constexpr, PADDING_W: tl.constexpr, DILATION_W: tl.constexpr,
    TILE_Q: tl.constexpr, VECTOR: tl.constexpr, MAX: tl.constexpr,
):  # fmt: skip
    """Return the values of TILE_Q windows in one row of an image, for each group of them.

    Columns are read as vectors that begin at multiples of VECTOR, so that each is inside or outside of the image as a
    whole. Columns that neighbours need are read again, from L1.

    Args:
        row: pointers to the rows (1, groups, 1).
        there: which rows are in the image (1, groups, 1).
        image: first column of each group (1, groups, 1), without padding; number of columns; which rows are of a plane.
    """
    first, W, in_planes = image
    there = there & in_planes
    BEFORE: tl.constexpr = (PADDING_W + VECTOR - 1) // VECTOR
    LAST: tl.constexpr = (TILE_Q - 1) * STRIDE_W + (S - 1) * DILATION_W - PADDING_W
    columns = ()
    for vector in tl.static_range(-BEFORE, LAST // VECTOR + 1):
        column = first + vector * VECTOR + tl.arange(0, VECTOR)[None, None, :]
        mask = there & (column < W)
        if vector < 0:
            mask = mask & (column >= 0)
        values = tl.load(row + column, mask=mask, other=empty(MAX)).to(tl.float32)
        columns = columns + taken_apart(values, VECTOR)
    return combined_along(columns, BEFORE * VECTOR - PADDING_W, S, STRIDE_W, DILATION_W, TILE_Q, MAX)


@triton.jit
def windows_nchw(
    x, out, planes, H, W_UNITS, P, Q_UNITS, divisor,
    R: tl.constexpr, S: tl.constexpr, STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr,
    PADDING_H: tl.constexpr, PADDING_W: tl.constexpr, DILATION_H: tl.constexpr, DILATION_W: tl.constexpr,
    MAX: tl.constexpr, COUNTED: tl.constexpr, COUNT_PADDING: tl.constexpr,
    VECTOR: tl.constexpr, VECTOR_OUT: tl.constexpr, WIDE: tl.constexpr, UNROLLED: tl.constexpr,
    TILE_P: tl.constexpr, TILE_Q: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_Q: tl.constexpr,
):  # fmt: skip
    """Compute BLOCK_N groups of TILE_P rows of outputs, BLOCK_Q columns of each.

    Groups are counted through all planes, so that programs are full whatever the number of rows. A row of an image that
    several rows of outputs need is read once if one thread computes them.

    Rows and columns are one dim of a tile, (1, BLOCK_N * GROUPS, VECTOR): of two dims without contiguous elements,
    Triton before 3.7 has the lanes of a warp along the first, in BLOCK_N different rows.
    """
    GROUPS: tl.constexpr = BLOCK_Q // TILE_Q
    THREADS: tl.constexpr = BLOCK_N * GROUPS
    W = W_UNITS * VECTOR
    Q = Q_UNITS * VECTOR_OUT
    blocks = tl.cdiv(Q, BLOCK_Q)
    program = tl.program_id(0)
    if WIDE:
        program = program.to(tl.int64)
    first_q = ((program % blocks) * BLOCK_Q).to(tl.int32)
    thread = tl.arange(0, THREADS)[None, :, None]
    group = (program // blocks) * BLOCK_N + thread // GROUPS
    groups = tl.cdiv(P, TILE_P)
    plane = group // groups
    p = ((group - plane * groups) * TILE_P).to(tl.int32)
    plane = plane.to(tl.int64)
    in_planes = plane < planes
    q = first_q + thread % GROUPS * TILE_Q

    h = p * STRIDE_H - PADDING_H
    pitch = tl.cast(W, tl.int64)
    row = x + (plane * H + h) * pitch
    values = values_of_windows(
        row_of_windows, row, pitch, (q * STRIDE_W, W, in_planes), h, H, R, S, STRIDE_H, STRIDE_W, PADDING_W,
        DILATION_H, DILATION_W, TILE_P, TILE_Q, VECTOR, UNROLLED, 1, THREADS, MAX,
    )  # fmt: skip

    place = out + plane * P * Q + p.to(tl.int64) * Q
    for i in tl.static_range(TILE_P):
        for part in tl.static_range(TILE_Q // VECTOR_OUT):
            value = put_together(values, i * TILE_Q + part * VECTOR_OUT, 1, VECTOR_OUT)
            column = q + part * VECTOR_OUT + tl.arange(0, VECTOR_OUT)[None, None, :]
            if not MAX:
                value = divided(
                    value, p + i, column, H, W, R, S, divisor,
                    STRIDE_H, STRIDE_W, PADDING_H, PADDING_W, COUNTED, COUNT_PADDING,
                )  # fmt: skip
            mask = in_planes & (p + i < P) & (column < Q)
            tl.store(place + tl.cast(i, tl.int64) * Q + column, value.to(out.dtype.element_ty), mask=mask)
