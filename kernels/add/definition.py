"""Sum of two tensors: out = x + y, element by element.

Two elements are read and one is written for one addition: 6 bytes of bf16 for an operation of which the card does
thousands of billions a second. So time is bytes over bandwidth, and a kernel reaches it if enough bytes are under way:
a read takes 600 ns or more, in which 4 TB/s deliver 2.4 MB, 18 KB for each multiprocessor. Accesses of 16 bytes a
thread need the fewest instructions for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.kernels.add.default import default
from tuner.kernels.add.draw import draw
from tuner.kernels.add.reference import reference, vendor
from tuner.kernels.add.space import valid
from tuner.kernels.add.tiles import add_tiles
from tuner.kernels.shared.elementwise import DIMS, DTYPES, KNOBS, SIZE_LIMITS, row_operands, tiled
from tuner.kernels.spec import Config, Kernel, Launch, Operand, Problem, Signature


def operands(problem: Problem) -> Mapping[str, Operand]:
    """Return x, y and out, each (N,) or (M, N)."""
    return row_operands(problem, ("x", "y"))


def launch(problem: Problem, config: Config, tensors: Mapping[str, Any]) -> tuple[Launch, ...]:
    return tiled(add_tiles, problem, config, (tensors["x"], tensors["y"], tensors["out"]), {})


def flops(problem: Problem) -> int:
    """Return one addition for each element."""
    return int(problem["M"] * problem["N"])


KERNEL = Kernel(
    signature=Signature(
        op="add",
        summary="sum x + y of two tensors of one shape",
        dims=DIMS,
        dtypes=DTYPES,
        size_limits=SIZE_LIMITS,
        knobs=KNOBS,
    ),
    operands=operands,
    launch=launch,
    reference=reference,
    vendor=vendor,
    valid=valid,
    default=default,
    draw=draw,
    flops=flops,
)
