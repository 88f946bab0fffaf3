"""Sums of rows, from a thread for each row to tiles of rows.

262,144 rows of 128 bf16 elements are 64 MB, read once; the sums are half a megabyte. The number of bytes in
flight decides how fast they are read. The steps read the same elements in portions of different sizes.
"""

from __future__ import annotations

from collections.abc import Callable

import triton
import triton.language as tl

from ladder.step import Ladder, Run, Step, Tensors
from tuner.kernels.reduce import KERNEL
from tuner.kernels.spec import Launch, Problem, cdiv, next_power_of_2


@triton.jit
def sum_by_threads(x, out, M, N, stride, ROWS: tl.constexpr):
    """Add up a row in each thread, element by element; the threads of a warp read elements that lie a row apart."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros((ROWS,), tl.float32)
    for n in range(N):
        total += tl.load(x + row.to(tl.int64) * stride + n, mask=row < M, other=0.0).to(tl.float32)
    tl.store(out + row, total.to(out.dtype.element_ty), mask=row < M)


@triton.jit
def sum_by_tiles(x, out, M, N, stride, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Read whole rows at once, and add them up across the threads that hold a row."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    n = tl.arange(0, BLOCK)[None, :]
    mask = (row < M)[:, None] & (n < N)
    values = tl.load(x + row.to(tl.int64)[:, None] * stride + n, mask=mask, other=0.0).to(tl.float32)
    tl.store(out + row, tl.sum(values, axis=1).to(out.dtype.element_ty), mask=row < M)


def threads(problem: Problem, tensors: Tensors) -> tuple[Run, ...]:
    """Launch `sum_by_threads` with 128 rows for the 4 warps of a program."""
    M, N = problem.sizes
    args = (tensors["x"], tensors["out"], M, N, tensors["x"].stride(0))
    return (Launch(sum_by_threads, (cdiv(M, 128),), args, {"ROWS": 128, "num_warps": 4, "num_stages": 1}),)


def tiled(rows: int, warps: int) -> Callable[[Problem, Tensors], tuple[Run, ...]]:
    """Return a step that launches `sum_by_tiles` with a number of rows and warps for each program."""

    def runs(problem: Problem, tensors: Tensors) -> tuple[Run, ...]:
        M, N = problem.sizes
        args = (tensors["x"], tensors["out"], M, N, tensors["x"].stride(0))
        kwargs = {"ROWS": rows, "BLOCK": next_power_of_2(N), "num_warps": warps, "num_stages": 1}
        return (Launch(sum_by_tiles, (cdiv(M, rows),), args, kwargs),)

    return runs


LADDER = Ladder(
    kernel=KERNEL,
    problems=(KERNEL.signature.problem({"M": 262_144, "N": 128, "dtype": "bf16"}),),
    steps=(
        Step("a row a thread", "neighbouring threads read elements that lie a row apart", threads),
        Step("a row a program", "whole rows, one element for each of 128 threads", tiled(1, 4)),
        Step("a row a warp", "four elements for each thread, no exchange between warps", tiled(1, 1)),
        Step(
            "tiles",
            "64 rows a program: four accesses of 16 bytes at once for each thread",
            tiled(64, 8),
        ),
    ),
    unit="GB/s",
)
