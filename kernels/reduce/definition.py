"""Reductions of x (M, N): sum, mean, max, min or logsumexp, along each row, over all rows, or of everything.

Each element is read once, and next to nothing is written, so the limit is the speed at which a card reads. A naive
version has one thread for each result: along rows, neighbouring threads then read elements that lie a row apart, of
which each access fetches 32 bytes to use one element; and a matrix with few results keeps few threads busy, with few
bytes in flight. An H200 needs 40 KB in flight for each multiprocessor at any time.

So a program reads a tile at once, 16 bytes with each access. Each thread first reduces its own elements. Then the
threads of a program combine their results. If there are too few results to fill the card, SPLIT programs share one:
each writes its part to memory, and the last one to finish combines them in a fixed order, so that results are
reproducible bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.errors import UsageError
from tuner.kernels.reduce.access import along_rows, over_rows
from tuner.kernels.reduce.default import default
from tuner.kernels.reduce.draw import draw
from tuner.kernels.reduce.over_rows import reduce_over_rows
from tuner.kernels.reduce.reference import reference, vendor
from tuner.kernels.reduce.space import Tile, shares, tile_of, valid
from tuner.kernels.reduce.within_rows import reduce_within_rows
from tuner.kernels.spec import (
    MAX_SIZE,
    Attribute,
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
    next_power_of_2,
)


def results(problem: Problem) -> tuple[int]:
    """Return the shape of the results: one for each row, one for each column, or one."""
    M, N = problem.sizes
    return ({"columns": M, "rows": N, "all": 1}[str(problem["axis"])],)


def operands(problem: Problem) -> Mapping[str, Operand]:
    """Return x (M, N), out, and for an index indices; they are (M,), (N,) or (1,).

    Raises:
        UsageError: an index of what is neither max nor min.
    """
    fill = None
    if problem["index"] and problem["kind"] not in ("max", "min"):
        raise UsageError(f"reduce has an index for kind max and min, not for {problem['kind']}; leave out index")
    if problem["kind"] in ("sum", "mean"):
        fill = {"columns": fill_rows, "rows": fill_columns, "all": fill_all}[str(problem["axis"])]
    found = {
        "x": Operand(problem.sizes, problem.dtype, fill=fill),
        "out": Operand(results(problem), problem.dtype, role="out"),
    }
    if problem["index"]:
        found["indices"] = Operand(results(problem), "int64", role="out")
    return found


def fill_rows(tensor: Any, generator: Any) -> None:
    """Draw rows whose sums do not cancel, which would make any rounding a large error: they are 4 +- 1 roots of N."""
    tensor.normal_(mean=4 * tensor.shape[1] ** -0.5, generator=generator)


def fill_columns(tensor: Any, generator: Any) -> None:
    """Draw columns as `fill_rows` does rows."""
    tensor.normal_(mean=4 * tensor.shape[0] ** -0.5, generator=generator)


def fill_all(tensor: Any, generator: Any) -> None:
    """Draw a matrix as `fill_rows` does each row."""
    tensor.normal_(mean=4 * tensor.numel() ** -0.5, generator=generator)


def workspace(problem: Problem, config: Config, limits: Limits) -> Mapping[str, Operand]:
    """Return, for results that programs share: the number of those that have arrived, and the state of each."""
    if config["SPLIT"] == 1:
        return {}
    (count,), split = results(problem), config["SPLIT"]
    groups = shares(problem, config).groups
    found = {"arrived": Operand((groups,), "int32"), "firsts": Operand((split * count,), "fp32")}
    if problem["kind"] == "logsumexp":
        found["seconds"] = Operand((split * count,), "fp32")
    elif problem["index"]:
        found["seconds"] = Operand((split * count,), "fp64")
    return found


def launch(problem: Problem, config: Config, tensors: Mapping[str, Any]) -> tuple[Launch, ...]:
    M, N = problem.sizes
    if M == 0 or N == 0:
        return ()
    x, axis = tensors["x"], problem["axis"]
    tile, depth, split, stride = tile_of(problem, config), config["DEPTH"], config["SPLIT"], x.stride(0)
    if axis == "all" and stride == N and M * N <= MAX_ROW:  # rows without gaps are one
        M, N, tile = 1, M * N, Tile(1, tile.rows * tile.columns)
    written = [tensors.get(name) for name in ("out", "indices", "arrived", "firsts", "seconds")]
    run, align = (over_rows if axis == "rows" else along_rows)(x, M, N)
    each = 1 if align else run
    shape = (M, N // each, stride // each if M > 1 else N // each)
    compiled = {name: config[name] for name in ("SPLIT", "num_warps", "num_stages")}
    compiled |= {"KIND": problem["kind"], "INDEX": problem["index"], "RUN": run, "STAGES": config["num_stages"]}
    if axis == "rows":
        compiled |= {"BLOCK_M": tile.rows // depth, "BLOCK_N": tile.columns, "DEPTH": depth}
        compiled["PARTS"] = min(next_power_of_2(split), max(1, JOINED // tile.columns))
        return (Launch(reduce_over_rows, (cdiv(N, tile.columns) * split,), (x, *written, *shape), compiled),)
    blocks, groups = cdiv(N + (align - 1 if align and M > 1 else 0), tile.columns), cdiv(M, tile.rows)
    tiles, programs = (groups * blocks, split) if axis == "all" else (blocks, groups * split)
    compiled |= {"BLOCK_M": tile.rows, "BLOCK_N": tile.columns, "ALL": axis == "all", "ALIGN": align}
    return (Launch(reduce_within_rows, (programs,), (x, *written, *shape, blocks, tiles), compiled),)


JOINED = 8192
"""Number of states that the last program reads at once, if it reduces over rows."""
MAX_ROW = MAX_SIZE - 2**26
"""Number of elements of a row, and of rows, up to which the last step of any config ends below 2^31."""


def flops(problem: Problem) -> int:
    """Return one operation for each element."""
    M, N = problem.sizes
    return M * N


KERNEL = Kernel(
    signature=Signature(
        op="reduce",
        summary="sum, mean, max, min or logsumexp of x (M, N) over columns, rows or everything",
        dims=(
            Dim("M", help="rows of x; all: 1 for a dense tensor, else rows with gaps between them"),
            Dim("N", default="M", help="columns of x; all: elements of a dense tensor"),
        ),
        dtypes=("fp32", "fp16", "bf16"),
        attributes=(
            Attribute("kind", ("sum", "mean", "max", "min", "logsumexp"), "sum", "what is computed of the elements"),
            Attribute("axis", ("columns", "rows", "all"), "columns", "what is reduced: columns gives one result a row"),
            Attribute("index", (False, True), False, "also return where the max or min is"),
        ),
        size_limits=(SizeLimit("M", MAX_ROW), SizeLimit("N", MAX_ROW)),
        knobs=(
            Knob(
                "BLOCK_N", tuple(2**power for power in range(16)), "columns of a tile; its rows are what threads read"
            ),
            Knob("DEPTH", (1, 2, 4, 8, 16), "accesses of 16 bytes that each thread makes at once"),
            Knob("SPLIT", tuple(2**power for power in range(12)), "programs that share a result; the last joins it"),
            Knob("num_warps", (1, 2, 4, 8, 16, 32), "warps that share a tile"),
            Knob("num_stages", (1, 2, 3, 4), "steps of a loop in flight"),
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
    draw=draw,
)
