"""RMS norm over rows: out (M, N) = x / sqrt(mean(x^2) + eps) * weight, row by row.

Bytes decide the speed. Written as separate torch operations (square, mean, root, quotient, product), it reads or writes
the matrix seven times. A row that stays in a program's registers is read once and written once, 2 M N elements, and the
kernel runs at the speed of a copy. The residual of a transformer's block adds a read and a write; in a kernel of its
own, the sum would be written and read again.

Short rows fill a program only together. A row that no program can hold is read twice by one program, or several
programs hold a part of it each, and wait for each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.kernels.rms_norm.draw import draw
from tuner.kernels.rms_norm.looped import rms_norm_looped
from tuner.kernels.rms_norm.odd_rows import rms_norm_odd
from tuner.kernels.rms_norm.reference import flashinfer, liger, reference, vendor
from tuner.kernels.rms_norm.shared_rows import rms_norm_shared
from tuner.kernels.rms_norm.whole import rms_norm_whole
from tuner.kernels.shared.rows_default import default
from tuner.kernels.shared.rows_launch import launched, shared_workspace
from tuner.kernels.shared.rows_space import KNOBS, PARTS, SIZE_LIMITS, valid
from tuner.kernels.spec import (
    Attribute,
    Config,
    Dim,
    Kernel,
    Launch,
    Limits,
    Operand,
    Problem,
    Signature,
)


def operands(problem: Problem) -> Mapping[str, Operand]:
    """Return x (M, N), weight (N,) and residual (M, N) if there are such, and the outputs of x's shape."""
    M, N = problem.sizes
    found = {"x": Operand((M, N), problem.dtype)}
    if problem["weight"]:
        found["weight"] = Operand((N,), problem.dtype)
    if problem["residual"]:
        found["residual"] = Operand((M, N), problem.dtype)
    found["out"] = Operand((M, N), problem.dtype, role="out")
    if problem["residual"]:
        found["residual_out"] = Operand((M, N), problem.dtype, role="out")
    return found


def workspace(problem: Problem, config: Config, limits: Limits) -> Mapping[str, Operand]:
    """Return, for rows shared by programs, what they exchange: a sum of squares each."""
    return shared_workspace(problem, config, found=1)


def launch(problem: Problem, config: Config, tensors: Mapping[str, Any]) -> tuple[Launch, ...]:
    matrices = [tensors.get(name) for name in ("x", "residual", "out", "residual_out")]
    pointers = tuple(tensors.get(name) for name in ("x", "weight", "residual", "out", "residual_out"))
    variants = {
        "whole": rms_norm_whole,
        "odd": rms_norm_odd,
        "looped": rms_norm_looped,
        "shared": rms_norm_shared,
    }
    return launched(problem, config, tensors, pointers, matrices, variants)


def flops(problem: Problem) -> int:
    """Return 4 operations for each element: square, sum, and two products."""
    M, N = problem.sizes
    return 4 * M * N


KERNEL = Kernel(
    signature=Signature(
        op="rms_norm",
        summary="RMS norm over the rows of x (M, N), with a weight and a residual",
        dims=(Dim("M", help="rows"), Dim("N", default="M", help="columns, normalised together")),
        dtypes=("bf16", "fp16", "fp32"),
        attributes=(
            Attribute("weight", (False, True), True, "multiply each column by a weight"),
            Attribute("residual", (False, True), False, "add a residual to x first, and return the sum"),
        ),
        size_limits=SIZE_LIMITS,
        knobs=KNOBS,
    ),
    operands=operands,
    launch=launch,
    workspace=workspace,
    waits=True,
    reference=reference,
    vendor=vendor,
    vendors={"liger": liger, "flashinfer": flashinfer},
    valid=valid,
    parts=PARTS,
    default=default,
    flops=flops,
    scalars={"eps": 1e-6},
    draw=draw,
)
