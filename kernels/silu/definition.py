"""SiLU: out = x sigmoid(x) = x / (1 + exp(-x)).

Written as separate torch operations (negation, exponential, sum, quotient) it reads five tensors and writes four; one
kernel reads one and writes one, and takes the time of a copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.kernels.shared.elementwise import DIMS, DTYPES, KNOBS, SIZE_LIMITS, row_operands, tiled
from tuner.kernels.silu.default import default
from tuner.kernels.silu.draw import draw
from tuner.kernels.silu.reference import reference, vendor
from tuner.kernels.silu.space import valid
from tuner.kernels.silu.tiles import silu_tiles
from tuner.kernels.spec import Config, Kernel, Launch, Operand, Problem, Signature


def operands(problem: Problem) -> Mapping[str, Operand]:
    """Return x and out, each (N,) or (M, N)."""
    return row_operands(problem, ("x",))


def launch(problem: Problem, config: Config, tensors: Mapping[str, Any]) -> tuple[Launch, ...]:
    return tiled(silu_tiles, problem, config, (tensors["x"], tensors["out"]), {})


def flops(problem: Problem) -> int:
    """Return 4 operations for each element: negation, exponential, addition and division."""
    return int(4 * problem["M"] * problem["N"])


KERNEL = Kernel(
    signature=Signature(
        op="silu",
        summary="SiLU x sigmoid(x) of a tensor",
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
