"""Layer norm over rows: out (M, N) = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias, row by row.

Bytes decide the speed. Written as separate torch operations (mean, difference, square, mean, root, quotient, product,
sum), it reads or writes the matrix eleven times. A row that stays in a program's registers is read once and written
once, 2 M N elements, and the kernel runs at the speed of a copy. The mean is then known before the variance is summed,
and no digits cancel.

Short rows fill a program only together. A row that no program can hold is read twice by one program, or several
programs hold a part of it each, and wait for each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.kernels.layer_norm.draw import draw
from tuner.kernels.layer_norm.looped import layer_norm_looped
from tuner.kernels.layer_norm.odd_rows import layer_norm_odd
from tuner.kernels.layer_norm.reference import liger, reference, vendor
from tuner.kernels.layer_norm.shared_rows import layer_norm_shared
from tuner.kernels.layer_norm.whole import layer_norm_whole
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
    """Return x (M, N), weight and bias (N,) if there are such, out (M, N), and mean and rstd (M,) if asked for."""
    M, N = problem.sizes
    found = {"x": Operand((M, N), problem.dtype)}
    for name in ("weight", "bias"):
        if problem[name]:
            found[name] = Operand((N,), problem.dtype)
    found["out"] = Operand((M, N), problem.dtype, role="out")
    for name in ("mean", "rstd") if problem["stats"] else ():
        found[name] = Operand((M,), "fp32", role="out")
    return found


def workspace(problem: Problem, config: Config, limits: Limits) -> Mapping[str, Operand]:
    """Return, for rows shared by programs, what they exchange: a mean and a sum of squares each."""
    return shared_workspace(problem, config, found=2)


def launch(problem: Problem, config: Config, tensors: Mapping[str, Any]) -> tuple[Launch, ...]:
    matrices = [tensors["x"], tensors["out"]]
    pointers = tuple(tensors.get(name) for name in ("x", "weight", "bias", "out", "mean", "rstd"))
    variants = {
        "whole": layer_norm_whole,
        "odd": layer_norm_odd,
        "looped": layer_norm_looped,
        "shared": layer_norm_shared,
    }
    return launched(problem, config, tensors, pointers, matrices, variants)


def flops(problem: Problem) -> int:
    """Return 7 operations for each element: two sums, difference, square, two products and an addition."""
    M, N = problem.sizes
    return 7 * M * N


KERNEL = Kernel(
    signature=Signature(
        op="layer_norm",
        summary="layer norm over the rows of x (M, N), with a weight and a bias",
        dims=(Dim("M", help="rows"), Dim("N", default="M", help="columns, normalised together")),
        dtypes=("bf16", "fp16", "fp32"),
        attributes=(
            Attribute("weight", (False, True), True, "multiply each column by a weight"),
            Attribute("bias", (False, True), True, "add a bias to each column"),
            Attribute("stats", (False, True), False, "also return mean and 1 / sqrt(var + eps) of each row"),
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
    vendors={"liger": liger},
    valid=valid,
    parts=PARTS,
    default=default,
    flops=flops,
    scalars={"eps": 1e-5},
    draw=draw,
)
