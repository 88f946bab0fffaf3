"""Transpose, from one row a program to a padded tile in shared memory.

8192 x 8192 fp32 is 256 MB: read once and written once, 512 MB are moved, as many as by a copy. Every step moves the
same elements. The steps differ in the number of 32-byte sectors that a warp touches for its 128 bytes: 4 if they are
adjacent, 32 if each lies in another row.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ladder.step import Ladder, Run, Step, Tensors, configured
from tuner.kernels.spec import Launch, Problem, cdiv
from tuner.kernels.transpose import KERNEL

BLOCK, TILE = 1024, 64


@triton.jit
def by_rows(x, out, N, stride_x, stride_out, BLOCK: tl.constexpr):
    """Read a row of x in order; each element that is written lies in another row of out, so in another sector."""
    m = tl.program_id(0).to(tl.int64)
    for start in range(0, N, BLOCK):
        n = start + tl.arange(0, BLOCK)
        row = tl.load(x + m * stride_x + n, mask=n < N)
        tl.store(out + n.to(tl.int64) * stride_out + m, row, mask=n < N)


@triton.jit
def by_columns(x, out, M, stride_x, stride_out, BLOCK: tl.constexpr):
    """Write a row of out in order; each element that is read lies in another row of x, so in another sector."""
    n = tl.program_id(0).to(tl.int64)
    for start in range(0, M, BLOCK):
        m = start + tl.arange(0, BLOCK)
        column = tl.load(x + m.to(tl.int64) * stride_x + n, mask=m < M)
        tl.store(out + n * stride_out + m, column, mask=m < M)


@triton.jit
def by_tiles(x, out, M, N, stride_x, stride_out, TILE_M: tl.constexpr, TILE_N: tl.constexpr):
    """Transpose a tile. The compiler sees that adjacent elements of x are not adjacent in out, so it reads in one
    order, writes in the other, and reorders the elements in shared memory."""
    m = tl.program_id(0) * TILE_M + tl.arange(0, TILE_M)[:, None]
    n = tl.program_id(1) * TILE_N + tl.arange(0, TILE_N)[None, :]
    mask = (m < M) & (n < N)
    tile = tl.load(x + m.to(tl.int64) * stride_x + n, mask=mask)
    tl.store(out + n.to(tl.int64) * stride_out + m, tile, mask=mask)


def rows(problem: Problem, tensors: Tensors) -> tuple[Run, ...]:
    """Launch `by_rows` with a program for each row of x."""
    M, N = problem.sizes
    x, out = tensors["x"], tensors["out"]
    args = (x, out, N, x.stride(0), out.stride(0))
    return (Launch(by_rows, (M,), args, {"BLOCK": BLOCK, "num_warps": 4, "num_stages": 1}),)


def columns(problem: Problem, tensors: Tensors) -> tuple[Run, ...]:
    """Launch `by_columns` with a program for each row of out."""
    M, N = problem.sizes
    x, out = tensors["x"], tensors["out"]
    args = (x, out, M, x.stride(0), out.stride(0))
    return (Launch(by_columns, (N,), args, {"BLOCK": BLOCK, "num_warps": 4, "num_stages": 1}),)


def tiles(problem: Problem, tensors: Tensors) -> tuple[Run, ...]:
    """Launch `by_tiles` with a program for each tile."""
    M, N = problem.sizes
    x, out = tensors["x"], tensors["out"]
    args = (x, out, M, N, x.stride(0), out.stride(0))
    kwargs = {"TILE_M": TILE, "TILE_N": TILE, "num_warps": 4, "num_stages": 1}
    return (Launch(by_tiles, (cdiv(M, TILE), cdiv(N, TILE)), args, kwargs),)


# Gluon states the layout of shared memory: the same tile, once in plain rows, once with one more word in each row.
GLUON = {"TILE_M": TILE, "TILE_N": TILE, "VEC": 1, "num_warps": 4, "num_stages": 1}

LADDER = Ladder(
    kernel=KERNEL,
    problems=(KERNEL.signature.problem({"M": 8192}),),
    steps=(
        Step("row-wise", "reads rows of x in order, writes with a stride", rows),
        Step("coalesced", "writes rows of out in order, reads with a stride", columns),
        configured("tiled", "both in order, turned in shared memory: bank conflicts", KERNEL, GLUON | {"PAD": 0}),
        configured("padded", "one word more in every row of the tile: no conflicts", KERNEL, GLUON | {"PAD": 1}),
        Step("by the compiler", "a tile in plain Triton, which swizzles it and moves 16 bytes at once", tiles),
    ),
    unit="GB/s",
)
