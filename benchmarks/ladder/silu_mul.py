"""SiLU of a gate times a projection, from copies of the halves to one kernel that reads them where they are.

4096 tokens of width 14336 in bf16 are 117 MB for each of gate, up and out, so 352 MB must be moved. Gate and up are
halves of the rows of one tensor.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ladder.step import Ladder, Run, Step, Tensors, configured
from tuner.kernels.silu_mul import KERNEL
from tuner.kernels.silu_mul.reference import halves
from tuner.kernels.spec import Problem


def two_operations(gate: Any, up: Any, out: Any, copies: bool) -> None:
    """Compute by two torch operations, of the tensors themselves or of copies of them."""
    import torch

    if copies:
        gate, up = gate.clone(memory_format=torch.contiguous_format), up.clone(memory_format=torch.contiguous_format)
    torch.mul(torch.nn.functional.silu(gate), up, out=out)


def operations(copies: bool, problem: Problem, tensors: Tensors) -> tuple[Run, ...]:
    """Return `two_operations` on the operands."""
    return (partial(two_operations, *halves(problem, tensors), tensors["out"], copies),)


KNOBS = {"STEPS": 1, "EVICT_FIRST": False, "num_warps": 4, "num_stages": 1}

LADDER = Ladder(
    kernel=KERNEL,
    problems=(KERNEL.signature.problem({"M": 4096, "N": 14336, "packed": True}),),
    steps=(
        Step("copies", "each half is copied, then two operations: nine tensors moved", partial(operations, True)),
        Step("operations", "two operations on the halves: five tensors moved", partial(operations, False)),
        configured("one kernel", "three tensors moved, 2 bytes a thread", KERNEL, KNOBS | {"BLOCK": 128}),
        configured("16 bytes", "8 elements of each half a thread", KERNEL, KNOBS | {"BLOCK": 1024}),
        configured(
            "two accesses", "16 elements of each half a thread: 64 bytes in flight", KERNEL, KNOBS | {"BLOCK": 2048}
        ),
    ),
    unit="GB/s",
)
