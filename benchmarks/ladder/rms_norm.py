"""RMS norm with a residual, from torch operations to rows that stay in registers.

8192 rows of 5120 in bf16 are 84 MB. x and the residual are read, the sum and the result are written: 336 MB.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ladder.step import Ladder, Run, Step, Tensors, configured
from tuner.kernels.rms_norm import KERNEL
from tuner.kernels.spec import Problem, Value


def torch_operations(x: Any, weight: Any, residual: Any, out: Any, residual_out: Any) -> None:
    """Compute by torch operations, each of which reads and writes device memory; sums are in fp32."""
    import torch

    if residual is not None:
        x = torch.add(x, residual, out=residual_out)  # reads two, writes
    numbers = x.float()  # reads, writes twice as much
    mean = numbers.square().mean(dim=1, keepdim=True)  # reads and writes as much, and reads it again
    scaled = numbers * (mean + KERNEL.scalars["eps"]).rsqrt()  # reads, writes
    out.copy_(scaled * weight.float())  # reads, writes, reads, writes half


def operations(problem: Problem, tensors: Tensors) -> tuple[Run, ...]:
    """Return `torch_operations` on the operands."""
    names = ("x", "weight", "residual", "out", "residual_out")
    return (partial(torch_operations, *(tensors.get(name) for name in names)),)


KNOBS: dict[str, Value] = {"VARIANT": "whole", "ROWS": 1, "STEPS": 1, "num_stages": 1}

LADDER = Ladder(
    kernel=KERNEL,
    problems=(KERNEL.signature.problem({"M": 8192, "N": 5120, "residual": True}),),
    steps=(
        Step("operations", "torch operations, the sums in fp32", operations),
        configured(
            "read twice",
            "one kernel; the row is read again for the second pass",
            KERNEL,
            KNOBS | {"VARIANT": "looped", "BLOCK_N": 2048, "num_warps": 8},
        ),
        configured(
            "one block", "the row in registers, in a block of 8192", KERNEL, KNOBS | {"BLOCK_N": 8192, "num_warps": 8}
        ),
        configured(
            "chunks", "five chunks of 1024 columns, none idle", KERNEL, KNOBS | {"BLOCK_N": 1024, "num_warps": 4}
        ),
        configured(
            "late weights",
            "weights are read after the sum: more programs fit",
            KERNEL,
            KNOBS | {"BLOCK_N": 1024, "num_warps": 4, "LATE": True},
        ),
    ),
    unit="GB/s",
)
