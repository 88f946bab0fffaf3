"""out = 2 x computed by torch under a Triton kernel's interface, so that the real worker runs without a GPU."""

import random
from types import SimpleNamespace

from tuner.kernels.spec import Attribute, Dim, Kernel, Knob, Launch, Operand, Signature

FAULTS = (
    "none",
    "half",
    "wrong",
    "nothing",
    "raises",
    "out of memory",
    "out of resources",
    "racy",  # wrong in one launch of five, by Python's own dice
    "spoils",  # leaves another input than it was given
    "changes its input",  # and is right for what it made of it
    "writes beside",  # right, and one element more
    "denies NaN",  # right wherever the input is finite
    "leaves NaN",  # writes only what is finite
)


class Double:
    """Stand-in for the result of `triton.jit`, with the attributes that are read."""

    def warmup(self, *args, grid, **kwargs):
        return SimpleNamespace(metadata=SimpleNamespace(shared=1024))

    def __getitem__(self, grid):
        return self.run

    def run(self, x, out, BLOCK, FAULT, num_warps, num_stages):
        if FAULT == "raises":
            raise ZeroDivisionError("a bug in the kernel")
        if FAULT == "out of memory":
            import torch

            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        if FAULT == "out of resources":
            from triton.runtime.errors import OutOfResources

            raise OutOfResources(300_000, 232_448, "shared memory")
        if FAULT == "changes its input":
            x.mul_(2)
        factor = 3 if FAULT == "wrong" or (FAULT == "racy" and random.random() < 0.2) else 2
        N = len(x) // 2 if FAULT == "half" else len(x)
        if FAULT == "leaves NaN":
            finite = x.isfinite()
            out[finite] = 2 * x[finite]
            out[x.isinf()] = 2 * x[x.isinf()]
        elif FAULT != "nothing":
            out[:N] = factor * (x.nan_to_num(0.0) if FAULT == "denies NaN" else x)[:N]
        if FAULT == "writes beside":
            out.as_strided((N + 1,), (1,))[N] = 1.0
        if FAULT == "spoils":
            x.zero_()
        return SimpleNamespace(n_regs=32, n_spills=0, metadata=SimpleNamespace(shared=1024))


DOUBLE = Double()


def launch(problem, config, tensors):
    return (Launch(DOUBLE, (1,), (tensors["x"], tensors["out"]), dict(config)),)


def vendor(problem, tensors):
    if problem["vendor"] == "elsewhere":
        return tensors["x"] * 2
    return tensors["out"].copy_(tensors["x"] * 2)


def operands(problem):
    return {"x": Operand((problem["N"],), "fp32"), "out": Operand((problem["N"],), "fp32", "out")}


KERNEL = Kernel(
    signature=Signature(
        op="on_torch",
        dims=(Dim("N"),),
        dtypes=("fp32",),
        attributes=(Attribute("vendor", ("here", "elsewhere"), "here"),),
        knobs=(
            Knob("BLOCK", (64, 128, 256, 512, 1024, 2048)),
            Knob("FAULT", FAULTS),
            Knob("num_warps", (1, 2, 4, 8, 16, 32)),
            Knob("num_stages", (1,)),
        ),
    ),
    operands=operands,
    launch=launch,
    reference=lambda problem, tensors, rows: {"out": tensors["x"][rows].double() * 2},
    vendor=vendor,
    default=lambda problem, limits: {"BLOCK": 256, "FAULT": "none", "num_warps": 4, "num_stages": 1},
)
