"""Transpose: out (N, M) = x (M, N) transposed, through padded shared memory.

Nothing is computed: 2 M N elements are moved, and only the order of accesses matters. Memory serves a warp best if its
32 threads read neighbouring elements. Rows of x are columns of out, so a naive kernel walks one of them with a stride,
and each access there fetches a sector of 32 bytes to use one element: up to 8 times the bytes for fp32. So a tile goes
through shared memory, read along rows of x and written along rows of out.

Shared memory has 32 banks. Reading a column of a tile whose rows are a multiple of 32 words long sends all threads of a
warp to one bank, one after the other. PAD elements behind each row shift the rows, and the column spreads over the
banks. Triton chooses shared layouts itself and has no padding; Gluon leaves it to the kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.kernels.shared.tiling import stated_multiple
from tuner.kernels.spec import (
    Config,
    Dim,
    Kernel,
    Knob,
    Launch,
    Operand,
    Problem,
    Signature,
    SizeLimit,
    cdiv,
)
from tuner.kernels.transpose.default import default
from tuner.kernels.transpose.draw import draw
from tuner.kernels.transpose.reference import reference, vendor
from tuner.kernels.transpose.space import valid
from tuner.kernels.transpose.tiles import transpose_kernel


def operands(problem: Problem) -> Mapping[str, Operand]:
    """Return x (M, N) and out (N, M)."""
    M, N = problem.sizes
    return {"x": Operand((M, N), problem.dtype), "out": Operand((N, M), problem.dtype, role="out")}


def launch(problem: Problem, config: Config, tensors: Mapping[str, Any]) -> tuple[Launch, ...]:
    M, N = problem.sizes
    if M == 0 or N == 0:
        return ()
    x, out = tensors["x"], tensors["out"]
    aligned = {
        "X_ALIGN": stated_multiple(config["VEC"], N, x.stride(0)),
        "OUT_ALIGN": stated_multiple(config["VEC"], M, out.stride(0)),
    }
    return (
        Launch(
            transpose_kernel,
            grid=(cdiv(M, config["TILE_M"]) * cdiv(N, config["TILE_N"]),),
            args=(x, out, M, N, x.stride(0), out.stride(0)),
            kwargs={**config, **aligned},
        ),
    )


KERNEL = Kernel(
    signature=Signature(
        op="transpose",
        summary="transpose of x (M, N); other dtypes move as the integer of their width",
        dims=(Dim("M", help="rows of x"), Dim("N", default="M", help="columns of x")),
        dtypes=("fp32", "bf16", "fp16", "int64", "int32", "int16", "int8"),
        size_limits=(SizeLimit("M", 2**31 - 256),),  # the tallest tile; N is not rounded up on the card
        knobs=(
            Knob("TILE_M", (16, 32, 64, 128, 256), "rows of x in a tile"),
            Knob("TILE_N", (16, 32, 64, 128, 256), "columns of x in a tile"),
            Knob("PAD", (0, 1, 2, 4, 8, 16), "elements between the tile's rows in shared memory"),
            Knob("VEC", (1, 2, 4, 8, 16), "neighbouring elements that a thread moves at once"),
            Knob("num_warps", (1, 2, 4, 8, 16), "warps that share a tile"),
            Knob("num_stages", (1,), "1: a program has one tile, and no loop to pipeline"),
        ),
    ),
    operands=operands,
    launch=launch,
    reference=reference,
    vendor=vendor,
    valid=valid,
    default=default,
    draw=draw,
    exact=True,
)
