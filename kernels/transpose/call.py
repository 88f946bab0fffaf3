"""`tuner.ops.transpose`: its tensors, and the problem that they are."""

from __future__ import annotations

import torch
from torch import Tensor

from tuner.kernels.calling import (
    OpCall,
    Tensors,
    check_matrices,
    empty,
    in_torch,
    rows_without_gaps,
    run,
    shape,
    short_name,
)
from tuner.kernels.transpose.definition import KERNEL

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integer dtypes by their width in bytes."""


def transpose(x: Tensor, out: Tensor | None = None) -> Tensor:
    """Return x (M, N) transposed, out (N, M), of elements of 1, 2, 4 or 8 bytes. A copy is made if rows have gaps.

    Raises:
        UsageError: as `gemm`.
    """
    if out is None:
        out = empty("transpose", x, lambda: x.shape[::-1])
    run(CALL, {"x": x, "out": out})
    return out


def shapes(tensors: Tensors) -> dict[str, tuple[int, ...]]:
    """Return the shape of out. Raises UsageError unless x is a matrix."""
    check_matrices("transpose", tensors)
    return {"out": shape(tensors["x"])[::-1]}


def passed_as(dtype: torch.dtype) -> torch.dtype:
    """Return the integer of the same width for a dtype that the kernel does not know: elements only move."""
    return dtype if short_name(dtype) in KERNEL.signature.dtypes else _INTEGERS.get(dtype.itemsize, dtype)


CALL = OpCall(
    kernel=KERNEL,
    function=transpose,
    takes_tensors="x out!",
    shapes=shapes,
    values=lambda tensors: {"M": tensors["x"].shape[0], "N": tensors["x"].shape[1], "dtype": tensors["x"].dtype},
    accepts=lambda name, tensor: rows_without_gaps(tensor),
    passed_as=passed_as,
    takes="elements of 1, 2, 4 or 8 bytes",
)
in_torch(CALL)
