"""Transpose: out (N, M) = x (M, N) transposed, through padded shared memory.

Nothing is computed, so the only question is how memory is touched. Device memory answers a warp best when its 32
threads read neighbouring elements. Rows of x are columns of out: whichever side a naive kernel walks in order, it
walks the other with a stride, and every access there fetches a whole sector to use one element. So a tile goes
through shared memory: read along rows of x, written along rows of out, the turn made in between.

There the turn meets the 32 banks. Reading a column of a tile whose rows are a multiple of 32 words long sends all
threads of a warp to one bank, one after the other. PAD elements behind every row shift each row by PAD, and the
column spreads over the banks. Plain Triton chooses shared layouts itself and has no word for this; Gluon does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.kernels.spec import (
    Config,
    Dim,
    Kernel,
    Knob,
    Launch,
    Operand,
    Problem,
    Signature,
    cdiv,
)
from tuner.kernels.transpose.default import default
from tuner.kernels.transpose.reference import reference, vendor
from tuner.kernels.transpose.space import valid
from tuner.kernels.transpose.tiles import transpose_kernel


def operands(problem: Problem) -> Mapping[str, Operand]:
    """x (M, N), out (N, M)."""
    M, N = problem.sizes
    return {"x": Operand((M, N), problem.dtype), "out": Operand((N, M), problem.dtype, role="out")}


def launch(problem: Problem, config: Config, tensors: Mapping[str, Any]) -> tuple[Launch, ...]:
    M, N = problem.sizes
    if M == 0 or N == 0:
        return ()
    x, out = tensors["x"], tensors["out"]
    return (
        Launch(
            transpose_kernel,
            grid=(cdiv(M, config["TILE_M"]) * cdiv(N, config["TILE_N"]),),
            args=(x, out, M, N, x.stride(0), out.stride(0)),
            kwargs=dict(config),
        ),
    )


KERNEL = Kernel(
    signature=Signature(
        op="transpose",
        summary="transpose of x (M, N); types not listed are moved as an int of their width",
        dims=(Dim("M", help="rows of x"), Dim("N", default="M", help="columns of x")),
        dtypes=("fp32", "bf16", "fp16", "int64", "int32", "int16", "int8"),
        knobs=(
            Knob("TILE_M", (16, 32, 64, 128, 256), "rows of x in a tile"),
            Knob("TILE_N", (16, 32, 64, 128, 256), "columns of x in a tile"),
            Knob("PAD", (0, 1, 2, 4, 8, 16), "elements between the tile's rows in shared memory"),
            Knob("VEC", (1, 2, 4, 8, 16), "neighbouring elements a thread moves at once"),
            Knob("num_warps", (1, 2, 4, 8, 16), "warps that share a tile"),
            Knob("num_stages", (1,), "one tile a program: there is no loop to pipeline"),
        ),
    ),
    operands=operands,
    launch=launch,
    reference=reference,
    vendor=vendor,
    valid=valid,
    default=default,
    exact=True,
)
