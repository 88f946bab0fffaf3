"""Elementwise ops: the operands, and how a problem is cut into tiles.

An op reads each element once and writes each once, so memory decides its time. Where elements lie does not matter:
tensors without gaps, in any order of their dims, are one row. A tile is BLOCK elements of one row, or of several short
ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd
from typing import Any

from tuner.kernels.spec import Dim, Knob, Launch, Operand, Problem, SizeLimit, cdiv, itemsize, next_power_of_2

ACCESS_BYTES = 16
"""Bytes of the widest access of a thread."""
LONGEST_ROW = 2**31 - 2**18
"""Largest number of elements of a row: indices up to a program's largest chunk past its end fit 32 bits."""
DTYPES = ("bf16", "fp16", "fp32")
NARROWEST = 256
"""Fewest columns of a tile, unless rows are shorter. Source: chosen."""
MOST_PAST = 1 / 8
"""Largest padding that whole tiles add to a row, as a fraction of the row. Source: chosen."""

DIMS = (
    Dim("N", help="elements of a row; a tensor without gaps is one row"),
    Dim("M", default=1, help="rows with gaps between them"),
)
SIZE_LIMITS = (SizeLimit("N", LONGEST_ROW), SizeLimit("M", 2**31 - 2**15))
KNOBS = (
    Knob("BLOCK", tuple(2**power for power in range(7, 15)), "elements that a program reads at once"),
    Knob("STEPS", (1, 2, 4), "blocks of a program, one after the other"),
    Knob("EVICT_FIRST", (False, True), "inputs leave the caches first, so that results stay"),
    Knob("num_warps", (1, 2, 4, 8, 16), "warps that share a block"),
    Knob("num_stages", (1, 2, 3, 4), "blocks of a program in flight between device and shared memory"),
)


def row_operands(problem: Problem, inputs: tuple[str, ...]) -> Mapping[str, Operand]:
    """Return the inputs and out, each (N,), or (M, N); behind each row of an input is a gap of N elements."""
    M, N = problem["M"], problem["N"]
    shape = (N,) if M == 1 else (M, N)
    strides = None if M == 1 else (2 * N, 1)
    read = {name: Operand(shape, problem.dtype, strides=strides) for name in inputs}
    return {**read, "out": Operand(shape, problem.dtype, role="out")}


def columns_of(N: int, block: int) -> int:
    """Return the number of columns of a tile of rows with gaps, a power of two.

    It is the largest one up to a block that pads rows by at most `MOST_PAST`, or else the one that pads them least.
    """
    widest = min(block, next_power_of_2(N))
    choices = [widest]
    while choices[-1] > NARROWEST:
        choices.append(choices[-1] // 2)
    return min(choices, key=lambda columns: max(cdiv(N, columns) * columns, int((1 + MOST_PAST) * N)))


def rows_of(problem: Problem, block: int) -> int:
    """Return the number of rows of a tile of a block."""
    return min(next_power_of_2(problem["M"]), block // columns_of(problem["N"], block))


def tiled(
    fn: Any,
    problem: Problem,
    config: Mapping[str, Any],
    tensors: tuple[Any, ...],
    compiled: Mapping[str, Any],
    apart: int = 0,
) -> tuple[Launch, ...]:
    """Return the launch of `fn` on tensors of M rows: `fn(*tensors, M, N, *strides of rows, **compiled)`.

    Args:
        apart: number of elements from one part of a row to the next, if a tensor holds several.
    """
    M, N = problem["M"], problem["N"]
    if M == 0 or N == 0:
        return ()
    strides = [tensor.stride(0) if M > 1 else 0 for tensor in tensors]
    if all(stride == N for stride in strides) and M * N <= LONGEST_ROW:
        M, N, strides = 1, M * N, [0] * len(tensors)
    columns = config["BLOCK"] if M == 1 else columns_of(N, config["BLOCK"])
    rows = 1 if M == 1 else rows_of(problem, config["BLOCK"])
    steps = min(config["STEPS"], next_power_of_2(cdiv(N, columns)))
    widest = ACCESS_BYTES // itemsize(problem.dtype)
    kwargs = {
        "ROWS": rows,
        "COLUMNS": columns,
        "STEPS": steps,
        "ALIGNED": gcd(widest, apart, *strides),
        "N_ALIGNED": gcd(widest, N),
        "EVICT_FIRST": config["EVICT_FIRST"],
        "STAGES": config["num_stages"],
        **compiled,
        "num_warps": config["num_warps"],
        "num_stages": config["num_stages"],
    }
    grid = (cdiv(M, rows) * cdiv(N, columns * steps),)
    return (Launch(fn, grid, (*tensors, M, N, *strides), kwargs),)
