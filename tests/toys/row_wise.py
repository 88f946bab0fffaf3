"""A user's first transpose: a program reads a row of x in order, and writes it down a column of out."""

import triton
import triton.language as tl

from tuner.kernels.spec import Dim, Kernel, Knob, Launch, Operand, Signature


@triton.jit
def row_wise(x, out, N, stride_x, stride_out, BLOCK: tl.constexpr):
    m = tl.program_id(0).to(tl.int64)
    for start in range(0, N, BLOCK):
        n = start + tl.arange(0, BLOCK)
        row = tl.load(x + m * stride_x + n, mask=n < N)
        tl.store(out + n.to(tl.int64) * stride_out + m, row, mask=n < N)


def launch(problem, config, tensors):
    x, out = tensors["x"], tensors["out"]
    M, N = problem.sizes
    return (Launch(row_wise, (M,), (x, out, N, x.stride(0), out.stride(0)), dict(config)),)


def operands(problem):
    M, N = problem.sizes
    return {"x": Operand((M, N), problem.dtype), "out": Operand((N, M), problem.dtype, role="out")}


KERNEL = Kernel(
    signature=Signature(
        op="row_wise",
        summary="transpose of x (M, N)",
        dims=(Dim("M"), Dim("N", default="M")),
        dtypes=("fp32",),
        knobs=(
            Knob("BLOCK", (512, 1024), "elements of a step"),
            Knob("num_warps", (4, 8)),
            Knob("num_stages", (1,)),
        ),
    ),
    operands=operands,
    launch=launch,
    reference=lambda problem, tensors, rows: {"out": tensors["x"][:, rows].t()},
    default=lambda problem, limits: {"BLOCK": 1024, "num_warps": 4, "num_stages": 1},
    exact=True,
)
