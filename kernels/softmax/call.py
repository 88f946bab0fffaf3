"""`tuner.ops.softmax`: its tensors, and the problem that they are."""

from __future__ import annotations

from torch import Tensor

from tuner.kernels.calling import (
    OpCall,
    Tensors,
    check_matrices,
    empty_like,
    in_torch,
    rows_without_gaps,
    shape,
)
from tuner.kernels.softmax.definition import KERNEL


def softmax(x: Tensor, out: Tensor | None = None) -> Tensor:
    """Return the softmax over the rows of x (M, N); `out` may be x. A copy is made if rows have gaps.

    Raises:
        UsageError: as `gemm`.
    """
    if out is None:
        out = empty_like("softmax", x)
    launch(x, out)
    return out


def shapes(tensors: Tensors) -> dict[str, tuple[int, ...]]:
    """Return the shape of out. Raises UsageError unless x is a matrix."""
    check_matrices("softmax", tensors)
    return {"out": shape(tensors["x"])}


CALL = OpCall(
    kernel=KERNEL,
    function=softmax,
    takes_tensors="x out!",
    shapes=shapes,
    values=lambda tensors: {"M": tensors["x"].shape[0], "N": tensors["x"].shape[1], "dtype": tensors["x"].dtype},
    in_place=(("out", "x"),),
    accepts=lambda name, tensor: rows_without_gaps(tensor),
)
launch = in_torch(CALL)
