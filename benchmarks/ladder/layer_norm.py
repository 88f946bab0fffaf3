"""Layer norm of short rows, from torch operations to programs with several rows each.

65,536 rows of 768 in bf16 are 101 MB, read once and written once: 201 MB.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ladder.step import Ladder, Run, Step, Tensors, configured
from tuner.kernels.layer_norm import KERNEL
from tuner.kernels.spec import Problem, Value


def torch_operations(x: Any, weight: Any, bias: Any, out: Any) -> None:
    """Compute by torch operations, each of which reads and writes device memory; sums are in fp32."""
    deviation = x.float() - x.float().mean(dim=1, keepdim=True)
    variance = deviation.square().mean(dim=1, keepdim=True)
    scaled = deviation * (variance + KERNEL.scalars["eps"]).rsqrt()
    out.copy_(scaled * weight.float() + bias.float())


def operations(problem: Problem, tensors: Tensors) -> tuple[Run, ...]:
    """Return `torch_operations` on the operands."""
    return (partial(torch_operations, *(tensors[name] for name in ("x", "weight", "bias", "out"))),)


KNOBS: dict[str, Value] = {"VARIANT": "whole", "BLOCK_N": 1024, "ROWS": 1, "STEPS": 1, "num_stages": 1}

LADDER = Ladder(
    kernel=KERNEL,
    problems=(KERNEL.signature.problem({"M": 65536, "N": 768}),),
    steps=(
        Step("operations", "torch operations, the sums in fp32", operations),
        configured(
            "one row", "a program of 4 warps for each row, in a block of 1024", KERNEL, KNOBS | {"num_warps": 4}
        ),
        configured(
            "one warp",
            "three chunks of 256 columns: 24 elements a thread",
            KERNEL,
            KNOBS | {"BLOCK_N": 256, "num_warps": 1},
        ),
        configured(
            "several rows",
            "four rows for a program of 4 warps",
            KERNEL,
            KNOBS | {"BLOCK_N": 256, "ROWS": 4, "num_warps": 4},
        ),
        configured(
            "weights stay",
            "eight times four rows; the next are copied meanwhile",
            KERNEL,
            KNOBS | {"BLOCK_N": 256, "ROWS": 4, "STEPS": 8, "num_warps": 4, "num_stages": 2},
        ),
    ),
    unit="GB/s",
)
