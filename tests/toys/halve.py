"""x = x / 2 in place, which a second launch would change again."""

import triton
import triton.language as tl

from tuner.kernels.spec import Dim, Kernel, Knob, Launch, Operand, Signature


@triton.jit
def halve(x, N, BLOCK: tl.constexpr):
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + n, tl.load(x + n, mask=n < N) / 2, mask=n < N)


def launch(problem, config, tensors):
    N, block = problem["N"], config["BLOCK"]
    options = {"num_warps": config["num_warps"], "num_stages": config["num_stages"]}
    return (Launch(halve, (-(-N // block),), (tensors["x"], N), {"BLOCK": block, **options}),)


KERNEL = Kernel(
    signature=Signature(
        op="halve",
        dims=(Dim("N"),),
        dtypes=("fp32",),
        knobs=(Knob("BLOCK", (64, 128, 256)), Knob("num_warps", (1, 4)), Knob("num_stages", (1,))),
    ),
    operands=lambda problem: {"x": Operand((problem["N"],), "fp32", "inout")},
    launch=launch,
    reference=lambda problem, tensors, rows: {"x": tensors["x"][rows].double() / 2},
    vendor=lambda problem, tensors: tensors["x"].div_(2),
    default=lambda problem, limits: {"BLOCK": 128, "num_warps": 4, "num_stages": 1},
)
