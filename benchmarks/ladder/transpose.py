"""Transpose, from one row a program to a padded tile in shared memory.

8192 x 8192 fp32 is 256 MB: read once and written once, 512 MB move, and a copy moves as many. Every step here moves the
same elements. What differs is how many 32-byte sectors a warp touches for its 128 bytes: 4 if they are neighbours, 32
if each lies in another row.
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
    """A program reads a row of x in order; each element it writes lies in another row of out, so in another sector."""
    m = tl.program_id(0).to(tl.int64)
    for start in range(0, N, BLOCK):
        n = start + tl.arange(0, BLOCK)
        row = tl.load(x + m * stride_x + n, mask=n < N)
        tl.store(out + n.to(tl.int64) * stride_out + m, row, mask=n < N)


@triton.jit
def by_columns(x, out, M, stride_x, stride_out, BLOCK: tl.constexpr):
    """A program writes a row of out in order; each element it reads lies in another row of x, so in another sector."""
    n = tl.program_id(0).to(tl.int64)
    for start in range(0, M, BLOCK):
        m = start + tl.arange(0, BLOCK)
        column = tl.load(x + m.to(tl.int64) * stride_x + n, mask=m < M)
        tl.store(out + n * stride_out + m, column, mask=m < M)


@triton.jit
def by_tiles(x, out, M, N, stride_x, stride_out, TILE_M: tl.constexpr, TILE_N: tl.constexpr):
    """A tile has short rows on both sides. The compiler sees that neighbours in x are not neighbours in out, so it
    reads in one order, writes in the other, and makes the turn in shared memory."""
    m = tl.program_id(0) * TILE_M + tl.arange(0, TILE_M)[:, None]
    n = tl.program_id(1) * TILE_N + tl.arange(0, TILE_N)[None, :]
    mask = (m < M) & (n < N)
    tile = tl.load(x + m.to(tl.int64) * stride_x + n, mask=mask)
    tl.store(out + n.to(tl.int64) * stride_out + m, tile, mask=mask)


def rows(problem: Problem, tensors: Tensors) -> tuple[Run, ...]:
    """`by_rows`, a program a row of x."""
    M, N = problem.sizes
    x, out = tensors["x"], tensors["out"]
    args = (x, out, N, x.stride(0), out.stride(0))
    return (Launch(by_rows, (M,), args, {"BLOCK": BLOCK, "num_warps": 4, "num_stages": 1}),)


def columns(problem: Problem, tensors: Tensors) -> tuple[Run, ...]:
    """`by_columns`, a program a row of out."""
    M, N = problem.sizes
    x, out = tensors["x"], tensors["out"]
    args = (x, out, M, x.stride(0), out.stride(0))
    return (Launch(by_columns, (N,), args, {"BLOCK": BLOCK, "num_warps": 4, "num_stages": 1}),)


def tiles(problem: Problem, tensors: Tensors) -> tuple[Run, ...]:
    """`by_tiles`, a program a tile."""
    M, N = problem.sizes
    x, out = tensors["x"], tensors["out"]
    args = (x, out, M, N, x.stride(0), out.stride(0))
    kwargs = {"TILE_M": TILE, "TILE_N": TILE, "num_warps": 4, "num_stages": 1}
    return (Launch(by_tiles, (cdiv(M, TILE), cdiv(N, TILE)), args, kwargs),)


# In Gluon the layout of shared memory is ours: the same tile, once in plain rows, once with a word more in every row.
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
