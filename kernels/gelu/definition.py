"""GELU: out = x Phi(x), with Phi the normal distribution's cumulative function, or its approximation by tanh.

An element is read and one is written, 4 bytes of bf16, so a card that moves 4 TB/s computes 10^12 of them in a second.
Each multiprocessor then has 29 instructions for an element, of which 3.6 may be exponentials or reciprocals. The erf of
a math library takes most of them, and the kernel waits for arithmetic. For 16-bit results, Phi is computed as the
product of exp(-x^2 / 2) and a polynomial, with a relative error of 10^-4, in half of the instructions. fp32 has twice
the time for an element, and takes the library's erf.

With tanh there is nothing to approximate: 0.5 x (1 + tanh(u)) = x sigmoid(2 u).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.kernels.gelu.default import default
from tuner.kernels.gelu.draw import draw
from tuner.kernels.gelu.reference import reference, vendor
from tuner.kernels.gelu.space import valid
from tuner.kernels.gelu.tiles import gelu_tiles
from tuner.kernels.shared.elementwise import DIMS, DTYPES, KNOBS, SIZE_LIMITS, row_operands, tiled
from tuner.kernels.spec import Attribute, Config, Kernel, Launch, Operand, Problem, Signature


def operands(problem: Problem) -> Mapping[str, Operand]:
    """Return x and out, each (N,) or (M, N)."""
    return row_operands(problem, ("x",))


def launch(problem: Problem, config: Config, tensors: Mapping[str, Any]) -> tuple[Launch, ...]:
    return tiled(gelu_tiles, problem, config, (tensors["x"], tensors["out"]), {"APPROXIMATE": problem["approximate"]})


def flops(problem: Problem) -> int:
    """Return 16 operations for each element, about as many as the polynomial and the exponential have."""
    return int(16 * problem["M"] * problem["N"])


KERNEL = Kernel(
    signature=Signature(
        op="gelu",
        summary="GELU of a tensor, exact or approximated by tanh",
        dims=DIMS,
        dtypes=DTYPES,
        size_limits=SIZE_LIMITS,
        attributes=(
            Attribute(
                "approximate", ("none", "tanh"), "none", help="none: by erf; tanh: by the approximation with tanh"
            ),
        ),
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
