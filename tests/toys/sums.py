"""Sums of the rows of x where `keep`, times a factor; programs that share a row add to it, once a hook has zeroed it.

It has what few kernels have: a knob with None among its choices, an attribute of floats, a bool operand, no vendor, and
launches whose shape, number of arguments and workspace depend on a knob.
"""

import triton
import triton.language as tl

from tuner.kernels.spec import Attribute, Dim, Kernel, Knob, Launch, Operand, Signature


@triton.jit
def whole(x, keep, out, N, factor, BLOCK: tl.constexpr):
    m, n = tl.program_id(0), tl.arange(0, BLOCK)
    total = 0.0
    for start in range(0, N, BLOCK):
        values = tl.load(x + m * N + start + n, mask=start + n < N, other=0.0)
        kept = tl.load(keep + start + n, mask=start + n < N, other=False)
        total += tl.sum(tl.where(kept, values, 0.0))
    tl.store(out + m, total * factor)


@triton.jit
def shared(x, keep, out, N, factor, stride, step, PART: tl.constexpr, BLOCK: tl.constexpr):
    m, n = tl.program_id(0), tl.program_id(1) * PART + tl.arange(0, BLOCK)
    mine = (n < N) & (tl.arange(0, BLOCK) < PART)
    values = tl.load(x + m * N + n, mask=mine, other=0.0)
    kept = tl.load(keep + n, mask=mine, other=False)
    total = tl.sum(tl.where(kept, values, 0.0)) * factor
    tl.atomic_add(out + m * stride + tl.program_id(1) * step, total)


@triton.jit
def add_up(partial, out, SPLIT: tl.constexpr):
    m = tl.program_id(0)
    tl.store(out + m, tl.sum(tl.load(partial + m * SPLIT + tl.arange(0, SPLIT))))


def zero_out(arguments):
    arguments["out"][:, :1].zero_() if arguments["step"] == 0 else arguments["out"].zero_()


def workspace(problem, config, limits):
    return {} if config["SPLIT"] != 4 else {"partial": Operand((problem["M"], 4), "fp32")}


def launch(problem, config, tensors):
    M, N = problem.sizes
    split = config["SPLIT"]
    warps = {"num_warps": config["num_warps"], "num_stages": config["num_stages"]}
    inputs = tensors["x"], tensors["keep"]
    if split is None:
        options = {"BLOCK": 128, **warps}
        return (Launch(whole, (M,), (*inputs, tensors["out"], N, problem["factor"]), options),)
    part = triton.cdiv(N, split)
    options = {"PART": part, "BLOCK": triton.next_power_of_2(part), **warps}
    out = tensors["out"].view(M, 1).expand(M, split) if split == 2 else tensors["partial"]
    arguments = (*inputs, out, N, problem["factor"], *out.stride())
    first = Launch(shared, (M, split), arguments, options, pre_hook=zero_out)
    if split == 2:
        return (first,)
    return (first, Launch(add_up, (M,), (out, tensors["out"]), {"SPLIT": split, **warps}))


def reference(problem, tensors, rows):
    kept = tensors["x"][rows].double().masked_fill(~tensors["keep"], 0)
    return {"out": kept.sum(1) * problem["factor"]}


def vendor(problem, tensors):
    kept = tensors["x"].masked_fill(~tensors["keep"], 0)
    tensors["out"].copy_(kept.sum(1) * problem["factor"])


KERNEL = Kernel(
    signature=Signature(
        op="sums",
        dims=(Dim("M"), Dim("N")),
        dtypes=("fp32",),
        attributes=(Attribute("factor", (1.0, 0.5, 1e-5), 1.0),),
        knobs=(
            Knob("SPLIT", (None, 2, 4), default=None),
            Knob("num_warps", (1, 2)),
            Knob("num_stages", (1,)),
        ),
    ),
    operands=lambda problem: {
        "x": Operand(problem.sizes, "fp32"),
        "keep": Operand((problem["N"],), "bool"),
        "out": Operand((problem["M"],), "fp32", "out"),
    },
    launch=launch,
    workspace=workspace,
    reference=reference,
    vendor=vendor,
    default=lambda problem, limits: {"num_warps": 1, "num_stages": 1},
)
