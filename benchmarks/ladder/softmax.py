"""Softmax, from torch operations to one kernel.

Nothing is computed that takes long, so time is bytes. Operation by operation the matrix is read five times and written
three; in one kernel it is read once and written once. The least a kernel can do is a quarter of what the five do.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ladder.step import Ladder, Run, Step, Tensors
from tuner.kernels.softmax import KERNEL
from tuner.kernels.spec import Problem, next_power_of_2


def eight_passes(x: Any, out: Any) -> None:
    """Each operation reads and writes device memory, whatever the next one does with it."""
    import torch

    top = x.amax(dim=1, keepdim=True)  # reads x
    shifted = x - top  # reads x, writes as much
    powers = shifted.exp()  # reads, writes
    total = powers.sum(dim=1, keepdim=True)  # reads
    torch.div(powers, total, out=out)  # reads, writes


def operations(problem: Problem, tensors: Tensors) -> tuple[Run, ...]:
    """`eight_passes`."""
    return (partial(eight_passes, tensors["x"], tensors["out"]),)


def one_kernel(problem: Problem, tensors: Tensors) -> tuple[Run, ...]:
    """A program a row, which stays in the registers of 4 warps from its only read to its only write."""
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
