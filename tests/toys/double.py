"""The smallest kernel: out = 2 x."""

import triton
import triton.language as tl

from tuner.kernels.spec import Dim, Kernel, Knob, Launch, Operand, Signature


@triton.jit
def double(x, out, N, BLOCK: tl.constexpr):
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + n, 2 * tl.load(x + n, mask=n < N), mask=n < N)


def launch(problem, config, tensors):
    N, block = problem["N"], config["BLOCK"]
    warps = {"num_warps": config["num_warps"], "num_stages": config["num_stages"]}
    return (Launch(double, (-(-N // block),), (tensors["x"], tensors["out"], N), {"BLOCK": block, **warps}),)


KERNEL = Kernel(
    signature=Signature(
        op="double",
        summary="out = 2 x",
        dims=(Dim("N"),),
        dtypes=("fp32",),
        knobs=(
            Knob("BLOCK", (64, 128, 256, 512, 1024, 2048, 4096)),
            Knob("num_warps", (1, 2, 4, 8, 16)),
            Knob("num_stages", (1,)),
        ),
    ),
    operands=lambda problem: {"x": Operand((problem["N"],), "fp32"), "out": Operand((problem["N"],), "fp32", "out")},
    launch=launch,
    reference=lambda problem, tensors, rows: {"out": tensors["x"][rows].double() * 2},
    vendor=lambda problem, tensors: tensors["out"].copy_(tensors["x"] * 2),
    default=lambda problem, limits: {"BLOCK": 256, "num_warps": 4, "num_stages": 1},
)
