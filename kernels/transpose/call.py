"""`tuner.ops.transpose`: its tensors, and the problem that they are."""

from __future__ import annotations

from torch import Tensor

from tuner.kernels.calling import (
    OpCall,
    Tensors,
    check_matrices,
    empty,
    in_torch,
    rows_without_gaps,
    shape,
)
from tuner.kernels.shared.moved import moved_as
from tuner.kernels.transpose.definition import KERNEL


def transpose(x: Tensor, out: Tensor | None = None) -> Tensor:
    """Return x (M, N) transposed, out (N, M), of elements of 1, 2, 4 or 8 bytes. A copy is made if rows have gaps.

    Raises:
        UsageError: as `gemm`.
    """
    if out is None:
        out = empty("transpose", lambda x: x.shape[::-1], x=x)
    launch(x, out)
    return out


def shapes(tensors: Tensors) -> dict[str, tuple[int, ...]]:
    """Return the shape of out. Raises UsageError unless x is a matrix."""
    check_matrices("transpose", tensors)
    return {"out": shape(tensors["x"])[::-1]}


CALL = OpCall(
    kernel=KERNEL,
    function=transpose,
    takes_tensors="x out!",
    shapes=shapes,
    values=lambda tensors: {"M": tensors["x"].shape[0], "N": tensors["x"].shape[1], "dtype": tensors["x"].dtype},
    accepts=lambda name, tensor: rows_without_gaps(tensor),
    passed_as=moved_as(KERNEL),
    takes="elements of 1, 2, 4 or 8 bytes",
)
launch = in_torch(CALL)
