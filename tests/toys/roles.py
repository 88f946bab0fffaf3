"""Operands of every role behind arguments of every kind, computed by torch: sums, a state, and 8-bit floats."""

from types import SimpleNamespace

from tuner.kernels.spec import Dim, Kernel, Knob, Launch, Operand, Signature


class Function:
    """Stand-in for the result of `triton.jit`, with the attributes that are read."""

    def warmup(self, *args, grid, **kwargs):
        return SimpleNamespace(metadata=SimpleNamespace(shared=0))

    def __getitem__(self, grid):
        return self.run

    def run(self, scale, x, nothing, outputs, num_warps, num_stages):
        total, state, small = outputs
        total += x.sum()  # as atomic additions would
        state *= scale
        small.copy_(x)
        return SimpleNamespace(n_regs=32, n_spills=0, metadata=SimpleNamespace(shared=0))


FUNCTION = Function()


def launch(problem, config, tensors):
    outputs = [tensors["total"], tensors["state"], tensors["small"]]
    return (Launch(FUNCTION, (1,), (2.0, tensors["x"], None, outputs), dict(config)),)


def vendor(problem, tensors):
    tensors["total"].add_(tensors["x"].sum())
    tensors["state"].mul_(2)
    tensors["small"].copy_(tensors["x"])


def reference(problem, tensors, rows):
    return {
        "total": tensors["x"].double().sum().reshape(1)[rows],
        "state": tensors["state"][rows].double() * 2,
        "small": tensors["x"][rows].to(tensors["small"].dtype).double(),
    }


KERNEL = Kernel(
    signature=Signature(
        op="roles",
        dims=(Dim("N"),),
        dtypes=("fp16",),
        knobs=(Knob("num_warps", (1, 2, 4)), Knob("num_stages", (1,))),
    ),
    operands=lambda problem: {
        "x": Operand((problem["N"],), "fp16", fill=lambda tensor, generator: tensor.fill_(0.5)),
        "total": Operand((1,), "fp32", "inout", fill=lambda tensor, generator: tensor.zero_()),
        "state": Operand((problem["N"],), "fp32", "inout"),
        "small": Operand((problem["N"],), "fp8e4m3", "out"),
    },
    launch=launch,
    reference=reference,
    vendor=vendor,
    default=lambda problem, limits: {"num_warps": 1, "num_stages": 1},
)
