"""Copies of matrices between rows that begin anywhere and rows that begin at whole cache lines.

The copy engine (TMA) and asynchronous loads need rows aligned to 16 bytes. A product reads each element of a factor
once for each tile along the other side. A copy with padded rows reads and writes it once, so it costs little if there
are several such tiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import triton
import triton.language as tl

from tuner.kernels.shared.tiling import LINE_BYTES, vector_elements
from tuner.kernels.spec import Launch, Operand, cdiv, itemsize

TILE = 2048
"""Elements that a program of four warps copies: 16 a thread. A multiprocessor holds 16 such programs."""
COLUMNS = (2048, 1024, 512, 256, 128, 64, 32, 16)
"""Choices for the columns of a tile."""


@triton.jit
def copy_tile(
    unaligned, aligned, tile, rows, columns, row_stride, column_stride, aligned_stride,
    TILE: tl.constexpr, COLUMNS: tl.constexpr, VEC: tl.constexpr, BACK: tl.constexpr,
):  # fmt: skip
    """Copy a tile of TILE // COLUMNS rows by COLUMNS to aligned rows, or back.

    If load and store had one shape, Triton would give both the layout of the wider access, and neighbouring threads
    would load single elements 16 bytes apart. Loads are therefore 1-D, (TILE,), and stores 2-D, (TILE // COLUMNS,
    COLUMNS): values are exchanged through shared memory, and both accesses are coalesced.
    """
    ALIGNED_VEC: tl.constexpr = 128 // aligned.dtype.element_ty.primitive_bitwidth
    across = tl.cdiv(columns, COLUMNS)
    first_row, first_column = tile // across * (TILE // COLUMNS), tile % across * COLUMNS
    element = tl.arange(0, TILE)
    load_row, load_column = first_row + element // COLUMNS, first_column + element % COLUMNS
    store_row = (first_row + tl.arange(0, TILE // COLUMNS))[:, None]
    store_column = (first_column + tl.arange(0, COLUMNS))[None, :]
    # Aligned rows are accessed 16 bytes at once, so the last access reaches into the padding. Unaligned rows are
    # accessed VEC elements at once.
    padded = tl.cdiv(columns, ALIGNED_VEC) * ALIGNED_VEC
    whole = columns // VEC * VEC
    apart = row_stride // VEC * VEC
    aligned_apart = aligned_stride // ALIGNED_VEC * ALIGNED_VEC
    if BACK:
        values = tl.load(
            aligned + load_row.to(tl.int64) * aligned_apart + load_column,
            mask=(load_row < rows) & (load_column < padded),
        )
        values = tl.reshape(values, (TILE // COLUMNS, COLUMNS))
        place = unaligned + store_row.to(tl.int64) * apart + store_column.to(tl.int64) * column_stride
        tl.store(place, values, mask=(store_row < rows) & (store_column < whole))
    else:
        values = tl.load(
            unaligned + load_row.to(tl.int64) * apart + load_column.to(tl.int64) * column_stride,
            mask=(load_row < rows) & (load_column < whole),
            other=0.0,
        )
        values = tl.reshape(values, (TILE // COLUMNS, COLUMNS))
        place = aligned + store_row.to(tl.int64) * aligned_apart + store_column
        tl.store(place, values, mask=(store_row < rows) & (store_column < padded))


@triton.jit
def copy_rows(
    a, a_aligned, a_rows, a_columns, a_row_stride, a_column_stride, a_aligned_stride,
    b, b_aligned, b_rows, b_columns, b_row_stride, b_column_stride, b_aligned_stride, tiles_of_a,
    A_COLUMNS: tl.constexpr, A_VEC: tl.constexpr, B_COLUMNS: tl.constexpr, B_VEC: tl.constexpr,
    TILE: tl.constexpr, BACK: tl.constexpr,
):  # fmt: skip
    """Copy a tile of one matrix, or of two in one launch."""
    tile = tl.program_id(0)
    if b is None:
        copy_tile(
            a, a_aligned, tile, a_rows, a_columns, a_row_stride, a_column_stride, a_aligned_stride,
            TILE, A_COLUMNS, A_VEC, BACK,
        )  # fmt: skip
    else:
        if tile < tiles_of_a:
            copy_tile(
                a, a_aligned, tile, a_rows, a_columns, a_row_stride, a_column_stride, a_aligned_stride,
                TILE, A_COLUMNS, A_VEC, BACK,
            )  # fmt: skip
        else:
            copy_tile(
                b, b_aligned, tile - tiles_of_a, b_rows, b_columns, b_row_stride, b_column_stride, b_aligned_stride,
                TILE, B_COLUMNS, B_VEC, BACK,
            )  # fmt: skip


def aligned_operand(rows: int, columns: int, dtype: str, is_t: bool = False) -> Operand:
    """Return the workspace of a copy of a matrix with its padding, or of its transpose as a `t` matrix."""
    line = LINE_BYTES // itemsize(dtype)
    padded = cdiv(columns, line) * line
    return Operand((padded, rows), dtype, strides=(1, padded)) if is_t else Operand((rows, padded), dtype)


def copied(matrices: Sequence[tuple[Any, Any, bool]], *, back: bool = False) -> Launch:
    """Return the launch that copies one matrix or two.

    Args:
        matrices: one or two of (matrix, aligned workspace, is_t); is_t states that columns are contiguous, not rows.
        back: copy from the workspace to the matrix.
    """
    args: list[Any] = []
    compiled_in: dict[str, Any] = {"A_COLUMNS": 16, "A_VEC": 1, "B_COLUMNS": 16, "B_VEC": 1}
    tiles: list[int] = []
    for name, (matrix, aligned, is_t) in zip("AB", matrices, strict=False):
        inner, outer = (0, 1) if is_t else (1, 0)
        rows, columns = matrix.shape[outer], matrix.shape[inner]
        width, count = _cut(rows, columns)
        args += [matrix, aligned, rows, columns, matrix.stride(outer), matrix.stride(inner), aligned.stride(outer)]
        compiled_in |= {f"{name}_COLUMNS": width, f"{name}_VEC": vector_elements(matrix, is_t)}
        tiles.append(count)
    args += [None, None, *[0] * 5] * (2 - len(tiles))
    return Launch(
        copy_rows,
        grid=(sum(tiles),),
        args=(*args, tiles[0]),
        kwargs=compiled_in | {"TILE": TILE, "BACK": back, "num_warps": 4},
    )


def _cut(rows: int, columns: int) -> tuple[int, int]:
    """Return the columns of a tile, and the number of tiles: as few as possible, and then as wide as possible."""
    counts = {width: cdiv(columns, width) * cdiv(rows, TILE // width) for width in COLUMNS}
    width = min(counts, key=lambda width: counts[width])
    return width, counts[width]
