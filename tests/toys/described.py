"""A kernel of two launches: a descriptor reads x in the first, a workspace carries sum and count into the second."""

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from tuner.kernels.spec import Dim, Kernel, Knob, Launch, Operand, Signature


@triton.jit
def add_up(x, partial, arrived, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    pid = tl.program_id(0)
    tile = x.load([pid * BLOCK_M, 0])
    tl.store(partial + pid * BLOCK_N + tl.arange(0, BLOCK_N), tl.sum(tile, axis=0))
    tl.atomic_add(arrived, 1)


@triton.jit
def give(out, partial, arrived, PROGRAMS: tl.constexpr, BLOCK_N: tl.constexpr):
    """Write column sums, or -1 if another launch came between; the count is reset."""
    n = tl.arange(0, BLOCK_N)
    total = tl.zeros((BLOCK_N,), tl.float32)
    for program in range(PROGRAMS):
        total += tl.load(partial + program * BLOCK_N + n)
    total = tl.where(tl.load(arrived) == PROGRAMS, total, -1.0)
    tl.store(out + n, total)
    tl.atomic_add(arrived, -PROGRAMS)


def operands(problem):
    M, N = problem.sizes
    return {"x": Operand((M, N), "fp32"), "out": Operand((N,), "fp32", role="out")}


def workspace(problem, config, limits):
    M, N = problem.sizes
    return {"partial": Operand((M // 16, N), "fp32"), "arrived": Operand((4,), "int32")}


def launch(problem, config, tensors):
    M, N = problem.sizes
    options = {"num_warps": config["num_warps"], "num_stages": config["num_stages"]}
    described = TensorDescriptor(tensors["x"], [M, N], [N, 1], [16, N])
    work = tensors["partial"], tensors["arrived"]
    return (
        Launch(add_up, (M // 16,), (described, *work), {"BLOCK_M": 16, "BLOCK_N": N, **options}),
        Launch(give, (1,), (tensors["out"], *work), {"PROGRAMS": M // 16, "BLOCK_N": N, **options}),
    )


KERNEL = Kernel(
    signature=Signature(
        op="described",
        summary="sums of the columns of x (M, N), M a multiple of 16, N a power of two",
        dims=(Dim("M"), Dim("N")),
        dtypes=("fp32",),
        knobs=(Knob("num_warps", (1, 4)), Knob("num_stages", (1,))),
    ),
    operands=operands,
    launch=launch,
    workspace=workspace,
    reference=lambda problem, tensors, rows: {"out": tensors["x"].double().sum(0)[rows]},
    vendor=lambda problem, tensors: tensors["out"].copy_(tensors["x"].sum(0)),
    default=lambda problem, limits: {"num_warps": 4, "num_stages": 1},
)
