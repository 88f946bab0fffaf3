"""`tuner.ops.copy_column`: its tensors, and the problem that they are."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

import torch
from torch import Tensor

from tuner.errors import UsageError
from tuner.kernels.calling import (
    NOT_STRIDED,
    OpCall,
    Tensors,
    check_matrices,
    check_strided,
    in_torch,
    is_on_host,
    shape,
)
from tuner.kernels.copy_column.definition import KERNEL
from tuner.kernels.copy_column.space import MOST_PITCH
from tuner.kernels.shared.moved import moved_as


def copy_column(x: Tensor, column: int = 0, *, out: Tensor | None = None) -> Tensor:
    """Copy a column of x (M, N), of elements of 1, 2, 4 or 8 bytes, to out (M,) on a GPU, and return out.

    x may be in the host's memory, pinned or not; without `out`, the copy is then on the current device. Such a copy is
    asynchronous, as `copy_(x, non_blocking=True)` is: finish all writes to x before the call, and synchronize before
    you write to x again. You may drop x at once; only a CUDA graph needs it as long as it is replayed.

    Args:
        column: index of the column; a negative one counts from the last.

    Raises:
        UsageError: as `gemm`, and if there is no such column.
    """
    view = _column(x, column)
    if out is None:
        out = torch.empty(view.shape, dtype=view.dtype, device=_target(view))
    launch(view, out)
    return out


def _column(x: Tensor, column: int) -> Tensor:
    try:
        if x.ndim == 2:
            return x.select(1, column)
    except (IndexError, *NOT_STRIDED):
        pass
    check_strided("copy_column", {"x": x})
    check_matrices("copy_column", {"x": x})
    raise UsageError(
        f"copy_column takes the index of a column of x, and {column!r} is none of {x.shape[1]}; correct it"
    )


def _target(x: Tensor) -> torch.device | str:
    """Return the device on which the copy is allocated."""
    if not is_on_host(x):
        return x.device
    if not torch.cuda.is_available():
        raise UsageError("copy_column copies to a GPU, and torch finds none here; call torch instead")
    return "cuda"


def shapes(tensors: Tensors) -> dict[str, tuple[int, ...]]:
    """Return the shape of out."""
    return {"out": shape(tensors["x"])}


def values(tensors: Tensors) -> Mapping[str, object]:
    """Return the sizes, the dtype and the memory of a column. The row of a single element may have any length."""
    x = tensors["x"]
    (M,) = x.shape
    memory = "device" if not is_on_host(x) else "pinned" if x.is_pinned() else "pageable"
    return {"M": M, "N": x.stride(0) if M > 1 else 1, "dtype": x.dtype, "memory": memory}


def accepts(name: str, tensor: Tensor) -> bool:
    """Return whether a column has the strides that each way takes. `valid` tells the ways for those of x."""
    if tensor.shape[0] == 1:
        return True
    most = MOST_PITCH if name == "out" else inf
    return bool(0 < tensor.stride(0) * tensor.itemsize <= most)


CALL = OpCall(
    kernel=KERNEL,
    function=copy_column,
    takes_tensors="x out!",
    shapes=shapes,
    values=values,
    on_host=frozenset({"x"}),
    accepts=accepts,
    passed_as=moved_as(KERNEL),
    takes="elements of 1, 2, 4 or 8 bytes",
)
launch = in_torch(CALL)
