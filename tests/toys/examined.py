"""A user's kernel whose written tensors are not known: scales x (M, N) into out, sums its rows, counts on, by torch."""

import random
import time
from types import SimpleNamespace

from tuner.kernels.spec import Attribute, Dim, Kernel, Knob, Launch, Operand, Signature

FAULTS = (
    "none",
    "rounds",  # as coarsely as other block sizes may
    "twice",  # right by itself: another result than the others have
    "stale row",  # the last row is that of the launch before
    "racy",  # a row is missing in one launch of five, by Python's own dice
    "half",  # the last row is not written
    "reads outputs",  # the larger of what an output held and what is right; NaN is not larger
    "beyond",  # the sums take one element more
    "writes beside",
    "nothing",
    "not finite",
    "raises",
    "not compiled",
)


class Scale:
    """Stand-in for the result of `triton.jit`, with the attributes that are read."""

    def __init__(self):
        self.before = {}

    def warmup(self, *args, grid, FAULT, **kwargs):
        if FAULT == "not compiled":
            raise type("CompilationError", (Exception,), {})("at 3:4: no")
        return SimpleNamespace(metadata=SimpleNamespace(shared=1024))

    def __getitem__(self, grid):
        return self.run

    def run(self, x, out, total, count, BLOCK, FAULT, INPLACE, num_warps, num_stages):
        if FAULT == "raises":
            raise ZeroDivisionError("a bug in the kernel")
        if INPLACE == "waits" and int(count[0]) > 1_000_000:  # a lock of somebody else
            time.sleep(60)
        code = SimpleNamespace(n_regs=32, n_spills=0, metadata=SimpleNamespace(shared=1024))
        if FAULT == "nothing":
            return code
        M, N = x.shape
        made = 2 * x.float()
        row, self.before[x.shape] = self.before.get(x.shape), made[-1].clone()
        if FAULT == "twice":
            made = 2 * made
        elif FAULT == "rounds":
            made *= 1 + 2.0**-23
        elif FAULT == "stale row" and row is not None:
            made[-1] = row
        elif FAULT == "racy" and random.random() < 0.2:
            made[-1] = 0.0
        elif FAULT == "half":
            made[-1] = out[-1]
        elif FAULT == "reads outputs":
            made = made.fmax(out.float())
        elif FAULT == "not finite":
            made = made / 0
        sums = x.float().sum(1)
        if FAULT == "beyond":
            sums += x.as_strided((M,), (N,), x.storage_offset() + N).float()
        total.copy_(total + sums if INPLACE == "adds" else sums)
        if FAULT == "writes beside":
            total.as_strided((M + 1,), (1,))[M] = 1.0
        if INPLACE == "x":
            x.copy_(made)
        else:
            out.copy_(made)
        count += 1
        return code


SCALE = Scale()


def launch(problem, config, tensors):
    given = tuple(tensors[name] for name in ("x", "out", "total", "count"))
    return (Launch(SCALE, (1,), given, dict(config, INPLACE=problem["inplace"])),)


def unknown(problem, tensors, rows):
    raise NotImplementedError("there is no reference")


def few(tensor, generator):
    tensor.random_(0, 100, generator=generator)


def operands(problem):
    M, N = problem.sizes
    return {
        "x": Operand((M, N), problem.dtype, "inout"),
        "out": Operand((M, N), problem.dtype, "inout"),
        "total": Operand((M,), "fp32", "inout"),
        "count": Operand((1,), "int32", "inout", fill=few),
    }


KERNEL = Kernel(
    signature=Signature(
        op="examined",
        dims=(Dim("M"), Dim("N")),
        dtypes=("fp32", "bf16"),
        attributes=(Attribute("inplace", ("no", "x", "adds", "waits"), "no"),),
        knobs=(
            Knob("BLOCK", (64, 128, 256)),
            Knob("FAULT", FAULTS),
            Knob("num_warps", (4,)),
            Knob("num_stages", (1,)),
        ),
    ),
    operands=operands,
    launch=launch,
    reference=unknown,
    default=lambda problem, limits: {"BLOCK": 64, "FAULT": "none", "num_warps": 4, "num_stages": 1},
)
