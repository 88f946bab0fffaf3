"""Softmax, from torch operations to one kernel.

The computation is short, so the time is that of moving bytes. As separate operations the matrix is read five times and
written three times; one kernel reads it once and writes it once, a quarter of the bytes.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ladder.step import Ladder, Run, Step, Tensors
from tuner.kernels.softmax import KERNEL
from tuner.kernels.spec import Problem, next_power_of_2


def eight_passes(x: Any, out: Any) -> None:
    """Compute softmax by five torch operations, each of which reads and writes device memory."""
    import torch

    top = x.amax(dim=1, keepdim=True)  # reads x
    shifted = x - top  # reads x, writes as much
    powers = shifted.exp()  # reads, writes
    total = powers.sum(dim=1, keepdim=True)  # reads
    torch.div(powers, total, out=out)  # reads, writes


def operations(problem: Problem, tensors: Tensors) -> tuple[Run, ...]:
    """Return `eight_passes` on the operands."""
    return (partial(eight_passes, tensors["x"], tensors["out"]),)


def one_kernel(problem: Problem, tensors: Tensors) -> tuple[Run, ...]:
    """Launch a program for each row, which keeps the row in the registers of 4 warps between read and write."""
    block = next_power_of_2(problem["N"])
    config = KERNEL.signature.config({"BLOCK_N": block, "ROWS": 1, "num_warps": 4, "num_stages": 1})
    return KERNEL.launch(problem, config, tensors)


LADDER = Ladder(
    kernel=KERNEL,
    problems=(KERNEL.signature.problem({"M": 1823, "N": 781}), KERNEL.signature.problem({"M": 8192})),
    steps=(
        Step("operations", "five torch operations, eight passes over the matrix", operations),
        Step("one kernel", "one read and one write, the row in registers between", one_kernel),
    ),
    unit="GB/s",
)
