"""out = 2 x, by an op with a long name and five dims."""

from math import prod

import triton
import triton.language as tl

from tuner.kernels.spec import Attribute, Dim, Kernel, Knob, Launch, Operand, Signature


@triton.jit
def double(x, out, N, BLOCK: tl.constexpr):
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + n, 2 * tl.load(x + n, mask=n < N), mask=n < N)


def launch(problem, config, tensors):
    N, meta = prod(problem.sizes), {name: config[name] for name in ("BLOCK", "num_warps", "num_stages")}
    return (Launch(double, (-(-N // config["BLOCK"]),), (tensors["x"], tensors["out"], N), meta),)


KERNEL = Kernel(
    signature=Signature(
        op="grouped_query_attention",
        summary="out = 2 x",
        dims=tuple(Dim(name) for name in ("BATCH", "HEADS", "QUERIES", "KEYS", "WIDTH")),
        dtypes=("fp32",),
        attributes=(Attribute("layout", ("bshd", "bhsd"), "bshd"),),
        knobs=(
            Knob("BLOCK", (64, 128, 256)),
            *(Knob(f"ANOTHER_LONG_NAME_{number}", (16, 32)) for number in range(6)),
            Knob("num_warps", (4,)),
            Knob("num_stages", (1,)),
        ),
    ),
    operands=lambda problem: {"x": Operand(problem.sizes, "fp32"), "out": Operand(problem.sizes, "fp32", "out")},
    launch=launch,
    reference=lambda problem, tensors, rows: {"out": tensors["x"][rows].double() * 2},
    default=lambda problem, limits: {
        "BLOCK": 64,
        **{f"ANOTHER_LONG_NAME_{number}": 16 for number in range(6)},
        "num_warps": 4,
        "num_stages": 1,
    },
)
