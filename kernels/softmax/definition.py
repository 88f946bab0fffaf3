"""Softmax over rows: out (M, N) = exp(x - max(x)) / sum(exp(x - max(x))), row by row.

Bytes decide the speed, not arithmetic. Written as separate torch operations (maximum, difference, exponential, sum,
quotient), softmax reads or writes the matrix eight times, 8 M N elements. A row that fits one program's registers is
read once and written once, 2 M N elements, and the kernel runs at the speed of a copy.

The first output of a longer row needs the maximum and the sum of the whole row. Either one program reads the row twice,
and finds both in one online pass (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018), or
several programs hold a part of it each, and wait for each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.kernels.shared.tiling import ALIGNED_BYTES, stated_multiple
from tuner.kernels.softmax.default import default
from tuner.kernels.softmax.draw import draw
from tuner.kernels.softmax.one_pass import softmax_one_pass
from tuner.kernels.softmax.online import softmax_online
from tuner.kernels.softmax.reference import reference, vendor
from tuner.kernels.softmax.shared_rows import softmax_shared
from tuner.kernels.softmax.space import valid
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
    SizeLimit,
    cdiv,
    itemsize,
)


def operands(problem: Problem) -> Mapping[str, Operand]:
    """Return x (M, N) and out (M, N)."""
    return {"x": Operand(problem.sizes, problem.dtype), "out": Operand(problem.sizes, problem.dtype, role="out")}


def workspace(problem: Problem, config: Config, limits: Limits) -> Mapping[str, Operand]:
    """Return, for rows shared by programs: the started programs, those arrived at each row, and what each found."""
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
    compiled["ALIGN"] = stated_multiple(ALIGNED_BYTES // itemsize(problem.dtype), *shape[1:])
    rows = {"ROWS": config["ROWS"]}
    grid = (cdiv(M, config["ROWS"]),)
    if config["BLOCK_N"] >= N:
        return (Launch(softmax_one_pass, grid, (x, out, *shape), compiled | rows),)
    if config["SHARED"]:
        parts = cdiv(N, config["BLOCK_N"])
        work = (tensors["started"], tensors["arrived"], tensors["found"])
        return (Launch(softmax_shared, (M * parts,), (x, out, *work, *shape), compiled | {"PARTS": parts}),)
    return (Launch(softmax_online, grid, (x, out, *shape), compiled | rows | {"STAGES": config["num_stages"]}),)


def flops(problem: Problem) -> int:
    """Return 5 operations for each element: comparison, subtraction, exponential, addition and division."""
    M, N = problem.sizes
    return 5 * M * N


KERNEL = Kernel(
    signature=Signature(
        op="softmax",
        summary="softmax over the rows of x (M, N)",
        dims=(Dim("M", help="rows"), Dim("N", default="M", help="columns, normalised together")),
        dtypes=("fp32", "fp16", "bf16"),
        size_limits=(SizeLimit("N", 2**31 - 2**18),),  # blocks of 32,768 columns, four of them in flight
        knobs=(
            Knob(
                "BLOCK_N",
                tuple(2**power for power in range(18)),
                "columns read at once; from N on, the row stays in registers",
            ),
            Knob("ROWS", (1, 2, 4, 8, 16, 32), "rows of a program; short rows need several to fill it"),
            Knob("SHARED", (False, True), "programs share a row, a block each, and read it once", False),
            Knob("num_warps", (1, 2, 4, 8, 16, 32), "warps that share a program's rows"),
            Knob("num_stages", (1, 2, 3, 4), "blocks of a long row in flight"),
        ),
    ),
    operands=operands,
    launch=launch,
    workspace=workspace,
    waits=True,
    reference=reference,
    vendor=vendor,
    valid=valid,
    default=default,
    draw=draw,
    flops=flops,
)
