"""Rows that a program holds in its registers, in chunks of columns.

A block has a power of two of elements, and a row of 5,120 in one block of 8,192 leaves three lanes of eight idle. Five
chunks of 1,024 leave none. A chunk is small enough that every thread reads 16 bytes of it at once.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def inside(row, n, M, N, ROWS: tl.constexpr, EVEN: tl.constexpr):
    """Return the mask (ROWS, columns) of elements inside the matrix. The compiler drops a mask that is always true."""
    there = tl.full((ROWS, n.shape[0]), True, tl.int1)
    if ROWS > 1:
        there = there & (row < M)[:, None]
    if not EVEN:
        there = there & (n < N)[None, :]
    return there


@triton.jit
def read_rows(
    x, stride, row, M, N, BLOCK_N: tl.constexpr, CHUNKS: tl.constexpr, ROWS: tl.constexpr, EVEN: tl.constexpr
):
    """Return the chunks of rows of a matrix as a tuple of tiles (ROWS, BLOCK_N), 0 past the end."""
    start = x + row.to(tl.int64)[:, None] * stride
    chunks = ()
    for chunk in tl.static_range(CHUNKS):
        n = chunk * BLOCK_N + tl.arange(0, BLOCK_N)
        loaded = tl.load(start + n[None, :], mask=inside(row, n, M, N, ROWS, EVEN), other=0.0)
        chunks += (loaded,)  # type: ignore[assignment]
    return chunks


@triton.jit
def read_vector(vector, N, BLOCK_N: tl.constexpr, CHUNKS: tl.constexpr, EVEN: tl.constexpr):
    """Return the chunks of a vector (N,), such as a weight, as a tuple of tiles (1, BLOCK_N); () for None."""
    chunks = ()
    if vector is not None:
        for chunk in tl.static_range(CHUNKS):
            n = chunk * BLOCK_N + tl.arange(0, BLOCK_N)
            loaded = tl.load(vector + n) if EVEN else tl.load(vector + n, mask=n < N, other=0.0)
            chunks += (loaded[None, :],)  # type: ignore[assignment]
    return chunks
