"""SiLU of a gate, times another projection: out (M, N) = silu(gate) * up, the middle of a gated MLP.

As two torch operations, SiLU writes M N elements that the product reads again: five tensors are moved, where one kernel
reads two and writes one. Gate and up come from one matrix product where its weights are packed, so they are halves of
the rows of one tensor (M, 2 N). The kernel reads them where they are; a copy would cost as much as the op.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.kernels.shared.elementwise import DTYPES, KNOBS, SIZE_LIMITS, tiled
from tuner.kernels.silu_mul.default import default
from tuner.kernels.silu_mul.draw import draw
from tuner.kernels.silu_mul.reference import flashinfer, liger, reference, vendor
from tuner.kernels.silu_mul.shifted import shifted
from tuner.kernels.silu_mul.space import valid
from tuner.kernels.silu_mul.tiles import silu_mul_tiles
from tuner.kernels.spec import Attribute, Config, Dim, Kernel, Knob, Launch, Operand, Problem, Signature


def operands(problem: Problem) -> Mapping[str, Operand]:
    """Return gate (M, N), up (M, N) and out (M, N); packed, gate is (M, 2 N) and holds both."""
    M, N = problem.sizes
    if problem["packed"]:
        inputs = {"gate": Operand((M, 2 * N), problem.dtype)}
    else:
        inputs = {"gate": Operand((M, N), problem.dtype), "up": Operand((M, N), problem.dtype)}
    return {**inputs, "out": Operand((M, N), problem.dtype, role="out")}


def launch(problem: Problem, config: Config, tensors: Mapping[str, Any]) -> tuple[Launch, ...]:
    gate, N = tensors["gate"], problem["N"]
    if config["SHIFTED"]:
        return shifted(problem, config, tensors)
    if problem["packed"]:
        given = (gate, gate, tensors["out"])
        return tiled(silu_mul_tiles, problem, config, given, {"PACKED": True}, apart=N)
    return tiled(silu_mul_tiles, problem, config, (gate, tensors["up"], tensors["out"]), {"PACKED": False})


def flops(problem: Problem) -> int:
    """Return 5 operations for each element: those of SiLU, and a product."""
    M, N = problem.sizes
    return 5 * M * N


KERNEL = Kernel(
    signature=Signature(
        op="silu_mul",
        summary="silu(gate) * up, of two tensors or of the halves of one",
        dims=(Dim("M", help="tokens"), Dim("N", default="M", help="width of gate, up and out")),
        dtypes=DTYPES,
        size_limits=SIZE_LIMITS,
        attributes=(
            Attribute("packed", (False, True), False, help="gate and up are the halves of each row of one tensor"),
        ),
        knobs=(
            *KNOBS,
            Knob(
                "SHIFTED", (False, True), "16 bytes at once, shifted in shared memory, if halves begin anywhere", False
            ),
        ),
    ),
    operands=operands,
    launch=launch,
    reference=reference,
    vendor=vendor,
    vendors={"liger": liger, "flashinfer": flashinfer},
    valid=valid,
    default=default,
    draw=draw,
    flops=flops,
)
