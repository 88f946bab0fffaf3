"""copy_column on the device, from whole rows to one sector an element.

A column of 2^20 rows of 128 fp32 elements is 4 MB, and its matrix 512 MB. Memory is read in sectors of 32 bytes, so the
column costs 32 MB of reads at best: 8 times its bytes. The steps differ in what else they read, and in the number of
sectors in flight.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import triton
import triton.language as tl

from ladder.step import Ladder, Run, Step, Tensors, configured
from tuner.kernels.copy_column import KERNEL
from tuner.kernels.spec import Launch, Problem, Value, cdiv, next_power_of_2


@triton.jit
def whole_rows(x, out, M, N, stride_x, BLOCK: tl.constexpr):
    """Read a row, and write its first element."""
    m = tl.program_id(0).to(tl.int64)
    n = tl.arange(0, BLOCK)
    row = tl.load(x + m * stride_x + n, mask=tl.where(m < M - 1, n < N, n == 0), other=0)
    tl.store(out + m + n, row, mask=n == 0)


@triton.jit
def some_rows(x, out, M, stride_x, BLOCK: tl.constexpr):
    """Read the first element of each of BLOCK rows."""
    m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + m, tl.load(x + m * stride_x, mask=m < M), mask=m < M)


def by_rows(problem: Problem, tensors: Tensors) -> tuple[Run, ...]:
    """Launch `whole_rows` with a program for each row."""
    M, N = problem.sizes
    x, out = tensors["x"], tensors["out"]
    kwargs = {"BLOCK": next_power_of_2(N), "num_warps": 1, "num_stages": 1}
    return (Launch(whole_rows, (M,), (x, out, M, N, x.stride(0)), kwargs),)


def by_blocks(rows: int, problem: Problem, tensors: Tensors) -> tuple[Run, ...]:
    """Launch `some_rows` with one warp a program."""
    M, _ = problem.sizes
    x, out = tensors["x"], tensors["out"]
    kwargs = {"BLOCK": rows, "num_warps": 1, "num_stages": 1}
    return (Launch(some_rows, (cdiv(M, rows),), (x, out, M, x.stride(0)), kwargs),)


BLOCKS: Mapping[str, Value] = {"WAY": "kernel", "BLOCK": 1024, "WIDE": 0, "num_warps": 4, "num_stages": 1}

LADDER = Ladder(
    kernel=KERNEL,
    problems=(KERNEL.signature.problem({"M": 2**20, "N": 128}),),
    steps=(
        Step("whole rows", "reads the matrix, keeps a column", by_rows),
        Step("one element", "a program for each row: one sector of it, by one thread of 32", partial(by_blocks, 1)),
        Step("one warp", "32 rows a program, one sector a thread", partial(by_blocks, 32)),
        configured("blocks", "1,024 rows a program: 8 sectors a thread in flight", KERNEL, BLOCKS),
    ),
    unit="GB/s",
)
