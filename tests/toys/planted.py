"""Three outputs computed by torch, with a knob for each way to be wrong and fast, beside vendors and references."""

import random
from types import SimpleNamespace

from tuner.kernels.spec import Attribute, Dim, Kernel, Knob, Launch, Operand, Signature

FAULTS = (
    "none",
    "zeros",
    "stale row",  # the last row is that of the launch before
    "one of three",  # the last output is right up to its fourth element
    "last block",  # the sums leave out the last column
    "beyond",  # the sums take one element more
    "racy",  # a row is missing in one launch of five, by Python's own dice
    "reads outputs",  # the larger of what an output held and what is right; NaN is not larger
    "reads workspace",
)
WRONG = ("zeros", "row", "element", "factor", "output", "nothing")
"""Ways in which a vendor or a reference is wrong."""
RIGHT_US, WRONG_US = 100.0, 20.0
"""Latencies of right and of wrong configs."""


def results(x):
    """Return exp(x) (M, N), its sums by rows (M,), and the maxima of columns (N,)."""
    return {"out": x.exp(), "total": x.sum(1), "top": x.amax(0)}


def spoiled(made, how):
    """Return results that are wrong in one of the ways."""
    if how == "row":
        made["out"][-1] = made["out"][0]
    elif how == "element":
        made["total"][-1] += 1
    elif how == "factor":
        made["out"] *= 1.01
    elif how == "output":
        made["top"][4:] = made["top"][0]
    elif how == "zeros":
        made = {name: value * 0 for name, value in made.items()}
    elif how == "nothing":
        made = {}
    elif how == "coarse":  # within rounding, and only just
        places = made["out"].new_tensor(range(made["out"].numel())).reshape(made["out"].shape)
        made["out"] *= 1 + 0.004 * places.cos()
    return made


class Planted:
    """Stand-in for the result of `triton.jit`, with the attributes that are read."""

    def __init__(self):
        self.before = {}

    def warmup(self, *args, grid, **kwargs):
        return SimpleNamespace(metadata=SimpleNamespace(shared=1024))

    def __getitem__(self, grid):
        return self.run

    def run(self, x, out, total, top, sums, BLOCK, FAULT, num_warps, num_stages):
        import torch

        made = results(x.float())
        row = self.before.get(out.shape)
        self.before[out.shape] = made["out"][-1].clone()
        if FAULT == "zeros":
            made = {name: torch.zeros_like(value) for name, value in made.items()}
        elif FAULT == "stale row" and row is not None:
            made["out"][-1] = row
        elif FAULT == "one of three":
            made["top"][4:] = made["top"][3]
        elif FAULT == "last block":
            made["total"] = x[:, :-1].float().sum(1)
        elif FAULT == "beyond":
            M, N = x.shape
            made["total"] += x.as_strided((M,), (N,), x.storage_offset() + N).float()
        elif FAULT == "racy" and random.random() < 0.2:
            made["out"][-1] = 0.0
        elif FAULT == "reads outputs":
            made["out"] = torch.fmax(out.float(), made["out"])
        elif FAULT == "reads workspace":
            made["total"] = torch.fmax(sums, made["total"])
            sums.copy_(made["total"])
        out.copy_(made["out"])
        total.copy_(made["total"])
        top.copy_(made["top"])
        latency_us = (RIGHT_US if FAULT == "none" else WRONG_US) * (1 + BLOCK / 4096)
        code = SimpleNamespace(n_regs=32, n_spills=0, metadata=SimpleNamespace(shared=1024))
        code.latency_us = latency_us
        return code


PLANTED = Planted()


def launch(problem, config, tensors):
    return (Launch(PLANTED, (1,), tuple(tensors[name] for name in ("x", "out", "total", "top", "sums")), dict(config)),)


def reference(problem, tensors, rows):
    made = spoiled(results(tensors["x"].double()), problem["reference"])
    return {name: value[rows] for name, value in made.items()}


def vendor(problem, tensors):
    for name, value in spoiled(results(tensors["x"].float()), problem["vendor"]).items():
        tensors[name].copy_(value)


def operands(problem):
    M, N = problem.sizes
    return {
        "x": Operand((M, N), problem.dtype),
        "out": Operand((M, N), problem.dtype, "out"),
        "total": Operand((M,), "fp32", "out"),
        "top": Operand((N,), "fp32", "out"),
    }


KERNEL = Kernel(
    signature=Signature(
        op="planted",
        dims=(Dim("M"), Dim("N")),
        dtypes=("fp16", "bf16", "fp32"),
        attributes=(
            Attribute("reference", ("right", *(how for how in WRONG if how != "nothing")), "right"),
            Attribute("vendor", ("right", "coarse", *WRONG), "right"),
        ),
        knobs=(
            Knob("BLOCK", (64, 128)),
            Knob("FAULT", FAULTS),
            Knob("num_warps", (4,)),
            Knob("num_stages", (1,)),
        ),
    ),
    operands=operands,
    launch=launch,
    workspace=lambda problem, config, limits: {"sums": Operand((problem["M"],), "fp32")},
    reference=reference,
    vendor=vendor,
    default=lambda problem, limits: {"BLOCK": 64, "FAULT": "none", "num_warps": 4, "num_stages": 1},
)
