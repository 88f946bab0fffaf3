"""Softmax over rows: out (M, N) = exp(x - max(x)) / sum(exp(x - max(x))), row by row.

The arithmetic is nothing; the bytes are everything. Written with separate torch operations it reads or writes the
matrix eight times. While a row fits one program's registers it is read once and written once, which is the least
there is: the kernel should then run at the speed of a copy.

The first output of a longer row needs the maximum and the sum of all of it. Either the row is read twice, both being
found in one online pass (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018), or several
programs hold a part of it each, and wait for each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton
import triton.language as tl

from tuner.kernels.spec import (
    Config,
    Dim,
    Kernel,
    Knob,
    Launch,
    Limits,
    Operand,
    Problem,
    Signature,
    Value,
    cdiv,
    next_power_of_2,
)


@triton.jit
def softmax_one_pass(x, out, M, N, stride_x, stride_out, BLOCK_N: tl.constexpr, ROWS: tl.constexpr):
    """A row is one block: read, reduced and written without leaving the registers."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    n = tl.arange(0, BLOCK_N)
    mask = (row < M)[:, None] & (n < N)[None, :]
    row = row.to(tl.int64)[:, None]
    values = tl.load(x + row * stride_x + n[None, :], mask=mask, other=-float("inf")).to(tl.float32)
    values = tl.exp(values - tl.max(values, axis=1)[:, None])
    values = values / tl.sum(values, axis=1)[:, None]
    tl.store(out + row * stride_out + n[None, :], values.to(out.dtype.element_ty), mask=mask)


@triton.jit
def softmax_online(
    x, out, M, N, stride_x, stride_out,
    BLOCK_N: tl.constexpr, ROWS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """A row is many blocks: one pass for its maximum and sum, a second to write."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    in_rows = (row < M)[:, None]
    row = row.to(tl.int64)[:, None]
    n = tl.arange(0, BLOCK_N)
    x += row * stride_x
    out += row * stride_out

    # Every lane keeps the maximum and the sum of its own columns; they are joined once, after the loop.
    # A lane that has only seen -inf keeps a shift of 0, so that exp(-inf - shift) is 0 and not NaN.
    top = tl.full((ROWS, BLOCK_N), -float("inf"), tl.float32)
    total = tl.zeros((ROWS, BLOCK_N), tl.float32)
    for start in tl.range(0, N, BLOCK_N, num_stages=STAGES):
        column = start + n[None, :]
        values = tl.load(x + column, mask=in_rows & (column < N), other=-float("inf")).to(tl.float32)
        new_top = tl.maximum(top, values)
        shift = tl.where(new_top == -float("inf"), 0.0, new_top)
        total = total * tl.exp(top - shift) + tl.exp(values - shift)
        top = new_top
    row_top = tl.max(top, axis=1)[:, None]
    shift = tl.where(row_top == -float("inf"), 0.0, row_top)
    row_total = tl.sum(total * tl.exp(top - shift), axis=1)[:, None]

    # Backwards: the end of the row was read last and is the likeliest to be still in L2.
    for start in tl.range(0, N, BLOCK_N, num_stages=STAGES):
        column = (tl.cdiv(N, BLOCK_N) - 1) * BLOCK_N - start + n[None, :]
        mask = in_rows & (column < N)
        values = tl.load(x + column, mask=mask, other=-float("inf")).to(tl.float32)
        values = tl.exp(values - row_top) / row_total
        tl.store(out + column, values.to(out.dtype.element_ty), mask=mask)


@triton.jit
def softmax_shared(
    x, out, started, arrived, found, M, N, stride_x, stride_out,
    BLOCK_N: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """A row is a block of each of PARTS programs, which tell each other their maximum and sum through memory.

    Nobody waits in vain: a program takes its row when it starts, so those of all rows before are running or done.
    """
    ticket = tl.atomic_add(started, 1, sem="relaxed")
    if ticket == M * PARTS - 1:  # the last
        tl.store(started, 0)
    row, part = (ticket // PARTS).to(tl.int64), ticket % PARTS
    n = part * BLOCK_N + tl.arange(0, BLOCK_N)
    values = tl.load(x + row * stride_x + n, mask=n < N, other=-float("inf")).to(tl.float32)
    top = tl.max(values, axis=0)
    values = tl.exp(values - tl.where(top == -float("inf"), 0.0, top))
    mine = found + (row * PARTS + part) * 2
    tl.store(mine, top)
    tl.store(mine + 1, tl.sum(values, axis=0))

    tl.debug_barrier()  # both are written before one thread says so
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

    # A part of nothing but -inf was not shifted, and stays 0.
    values = values * tl.where(top == -float("inf"), 0.0, tl.exp(top - shift)) / row_total
    tl.store(out + row * stride_out + n, values.to(out.dtype.element_ty), mask=n < N)


def operands(problem: Problem) -> Mapping[str, Operand]:
    """x (M, N), out (M, N)."""
    return {"x": Operand(problem.sizes, problem.dtype), "out": Operand(problem.sizes, problem.dtype, role="out")}


def workspace(problem: Problem, config: Config, limits: Limits) -> Mapping[str, Operand]:
    """Where a row is shared: how many programs have started, how many are at which row, and what each has found."""
    M, N = problem.sizes
    if not config["SHARED"]:
        return {}
    return {
        "started": Operand((1,), "int32"),
        "arrived": Operand((M,), "int32"),
        "found": Operand((M, cdiv(N, config["BLOCK_N"]), 2), "fp32"),
    }


def launch(problem: Problem, config: Config, tensors: Mapping[str, Any]) -> tuple[Launch, ...]:
    M, N = problem.sizes
    if M == 0 or N == 0:
        return ()
    x, out = tensors["x"], tensors["out"]
    shape = (M, N, x.stride(0), out.stride(0))
    compiled = {name: config[name] for name in ("BLOCK_N", "num_warps", "num_stages")}
    rows = {"ROWS": config["ROWS"]}
    grid = (cdiv(M, config["ROWS"]),)
    if config["BLOCK_N"] >= N:
        return (Launch(softmax_one_pass, grid, (x, out, *shape), compiled | rows),)
    if config["SHARED"]:
        parts = cdiv(N, config["BLOCK_N"])
        work = (tensors["started"], tensors["arrived"], tensors["found"])
        return (Launch(softmax_shared, (M * parts,), (x, out, *work, *shape), compiled | {"PARTS": parts}),)
    return (Launch(softmax_online, grid, (x, out, *shape), compiled | rows | {"STAGES": config["num_stages"]}),)


def reference(problem: Problem, tensors: Mapping[str, Any], rows: slice) -> Mapping[str, Any]:
    return {"out": tensors["x"][rows].double().softmax(dim=1)}


def vendor(problem: Problem, tensors: Mapping[str, Any]) -> object:
    """`torch.softmax`."""
    import torch

    return torch.softmax(tensors["x"], dim=1, out=tensors["out"])


def valid(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    M, N = problem.sizes
    block_n, rows, shared = config["BLOCK_N"], config["ROWS"], config["SHARED"]
    threads = config["num_warps"] * limits.warp_size
    one_pass = block_n >= N
    # Values one thread holds at once; the online kernel keeps a maximum and a sum beside each.
    held = cdiv(rows * block_n, threads) * (1 if one_pass or shared else 3)
    return (
        # The row, rounded up, is the largest block that does anything.
        block_n <= next_power_of_2(N)
        # Short steps make a long row a long loop of small loads.
        and (one_pass or block_n >= 256)
        and rows <= next_power_of_2(M)
        and threads <= limits.threads_per_block
        # Threads without a value are idle; more values than a thread has registers spill.
        and (threads <= rows * block_n or config["num_warps"] == 1)
        and held <= limits.registers_per_thread // 2
        # Only a loop can be pipelined.
        and (config["num_stages"] == 1 or not (one_pass or shared))
        and (not shared or can_share(problem, config, limits))
    )


MOST_COLUMNS = 32768
"""The longest row that one program holds with registers to spare."""


def can_share(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Whether a row is worth sharing, and its programs may wait for each other."""
    parts = cdiv(problem["N"], config["BLOCK_N"])
    return (
        config["ROWS"] == 1
        and parts > 1
        # One program holds a shorter row, and waits for nobody.
        and problem["N"] > MOST_COLUMNS
        # All of them must be running at some time, even while others like them run beside, on up to 16 streams.
        and parts <= limits.sm_count // 16
    )


def default(problem: Problem, limits: Limits) -> Mapping[str, Value]:
    """The whole row at once while 32 warps can hold it; longer rows shared, and the longest a few thousand columns at a
    time."""
    M, N = problem.sizes
    row = next_power_of_2(N)
    for part, warps in ((8192, 4), (16384, 16)):  # 602 us and 622 at 4096 x 65536 fp32 (H200, 2026-11-28)
        config: dict[str, Value] = {"BLOCK_N": part, "ROWS": 1, "SHARED": True, "num_warps": warps, "num_stages": 1}
        if row > MOST_COLUMNS and valid(problem, config, limits):
            return config
    block_n = row if row <= MOST_COLUMNS else 4096
    rows = max(1, min(next_power_of_2(M), 1024 // block_n, 32))
    return {
        "BLOCK_N": block_n,
        "ROWS": rows,
        "SHARED": False,
        "num_warps": min(limits.threads_per_block // limits.warp_size, max(1, rows * block_n // 512)),
        "num_stages": 1 if block_n == row else 2,
    }


def flops(problem: Problem) -> int:
    """A comparison, a subtraction, an exponential, an addition and a division an element."""
    M, N = problem.sizes
    return 5 * M * N


KERNEL = Kernel(
    signature=Signature(
        op="softmax",
        summary="softmax over the rows of x (M, N)",
        dims=(Dim("M", help="rows"), Dim("N", default="M", help="columns, normalised together")),
        dtypes=("fp32", "fp16", "bf16"),
        knobs=(
            Knob(
                "BLOCK_N",
                tuple(2**power for power in range(18)),
                "columns read together; at least N: the row stays in registers",
            ),
            Knob("ROWS", (1, 2, 4, 8, 16, 32), "rows a program takes; short rows need several to fill it"),
            Knob("SHARED", (False, True), "a longer row is shared by programs with a block each, and read once", False),
            Knob("num_warps", (1, 2, 4, 8, 16, 32), "warps that share a program's rows"),
            Knob("num_stages", (1, 2, 3, 4), "blocks of a long row in flight"),
        ),
    ),
    operands=operands,
    launch=launch,
    workspace=workspace,
    reference=reference,
    vendor=vendor,
    valid=valid,
    default=default,
    flops=flops,
)
