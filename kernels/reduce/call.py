"""`tuner.ops.reduce`: its tensors, and the problem that they are."""

from __future__ import annotations

from math import inf, nan, prod
from typing import Any, Literal, overload

import torch
from torch import Tensor

from tuner.errors import UsageError
from tuner.kernels.calling import NOT_STRIDED, OpCall, Tensors, cached, check_strided, in_torch, shape
from tuner.kernels.reduce.definition import KERNEL, MAX_ROW
from tuner.kernels.shared.elementwise_call import equal_rows

OF_NOTHING = {"sum": 0.0, "mean": nan, "logsumexp": -inf}
"""Results of no elements; max and min have none."""


@overload
def reduce(
    x: Tensor,
    kind: str = ...,
    *,
    dim: int | tuple[int, ...] | None = ...,
    index: Literal[False] = ...,
    out: Tensor | None = ...,
) -> Tensor: ...


@overload
def reduce(
    x: Tensor,
    kind: str,
    *,
    dim: int | tuple[int, ...] | None = ...,
    index: Literal[True],
    out: Tensor | None = ...,
    indices: Tensor | None = ...,
) -> tuple[Tensor, Tensor]: ...


def reduce(
    x: Tensor,
    kind: str = "sum",
    *,
    dim: int | tuple[int, ...] | None = None,
    index: bool = False,
    out: Tensor | None = None,
    indices: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Return the sum, mean, max, min or logsumexp of x over `dim`, in the dtype of x, with sums in fp32.

    With `index`, return values and indices (int64), as `torch.max(x, dim)` does: of equal values the index of the
    first, and NaN is both max and min. An index over several dims is that of the flattened dims. A copy is made
    unless the dims of x flatten to a matrix whose rows have no gaps.

    Args:
        x: of any shape; bf16, fp16 or fp32.
        dim: one or several dims, the first or the last ones of x, or None for all. Negative dims count from the end.
        index: also return the index of the max or min.
        out, indices: of the shape of x without `dim`.

    Raises:
        UsageError: as `gemm`, and for other dims, an index of another kind, or max and min of no elements.
    """
    if index and kind not in ("max", "min"):
        raise UsageError(f"reduce has an index for max and min, not for {kind!r}; leave out index=True")
    if indices is not None and not index:
        raise UsageError("reduce writes indices if index=True, and it is False; add it, or leave out indices")
    try:
        axis, lead = known_axis(dim, x.ndim)
        if x.ndim == 2 and axis != "all" and x.stride(0) == 1 and x.stride(1) >= x.shape[0]:  # it is a transpose
            x, axis = x.t(), "rows" if axis == "columns" else "columns"
    except NOT_STRIDED:
        check_strided("reduce", {"x": x})
        raise
    if out is None:
        out = torch.empty(result_shape(x, axis, lead), dtype=x.dtype, device=x.device)
    if index and indices is None:
        indices = torch.empty(result_shape(x, axis, lead), dtype=torch.int64, device=x.device)
    launch(x, out, indices, kind, axis, lead)
    return out if indices is None else (out, indices)


def axis_of(dim: int | tuple[int, ...] | None, ndim: int) -> tuple[str, int]:
    """Return the axis of the problem, and the number of leading dims that are its rows.

    Raises:
        UsageError: there is no such dim, or the dims are neither the first nor the last.
    """
    if dim is None:
        return "all", 0
    if isinstance(dim, int):
        dim = (dim,)
    if not isinstance(dim, tuple | list) or not all(isinstance(each, int) for each in dim):
        raise UsageError(f"reduce takes a dim, several or None, not {dim!r}; correct it")
    dims = sorted({each + ndim if each < 0 else each for each in dim})
    if ndim == 0 and dims in ([0], [-1]):
        return "all", 0
    if not dims or dims[0] < 0 or dims[-1] >= ndim:
        raise UsageError(f"reduce takes a dim from {-ndim} to {ndim - 1} here, not {shown(dim)}; correct it")
    if len(dims) == ndim:
        return "all", 0
    if dims == [*range(ndim - len(dims), ndim)]:
        return "columns", ndim - len(dims)
    if dims == [*range(len(dims))]:
        return "rows", len(dims)
    raise UsageError(
        f"reduce takes the first or the last dims of x, not {shown(dim)} of {ndim}; "
        f"move them to the end, as in x.movedim({dims[0]}, -1)"
    )


known_axis = cached(axis_of)


def shown(dim: tuple[int, ...]) -> str:
    """Return a dim, or several, as messages show them."""
    return str(dim[0]) if len(dim) == 1 else str(dim)


def result_shape(x: Tensor, axis: str, lead: int) -> tuple[int, ...]:
    """Return the shape of the results."""
    return {"columns": shape(x)[:lead], "rows": shape(x)[lead:], "all": ()}[axis]


def shapes(tensors: Tensors, kind: str, axis: str, lead: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of out and indices. Raises UsageError for max or min of no elements."""
    x = tensors["x"]
    along = {"columns": shape(x)[lead:], "rows": shape(x)[:lead], "all": shape(x)}[axis]
    if kind not in OF_NOTHING and prod(along) == 0:
        raise UsageError(
            f"reduce takes a {kind} of at least one element, and x has shape {shape(x)}; leave out the call"
        )
    results = result_shape(x, axis, lead)
    return {"out": results, "indices": results}


def viewed(tensors: Tensors, kind: str, axis: str, lead: int) -> Tensors | None:
    """Return x as a matrix, and the results as vectors; None if the strides do not allow it."""
    x = tensors["x"]
    if axis == "all":
        matrix = of_everything(x, in_order="indices" in tensors)
    else:
        matrix = flattened(x, prod(x.shape[:lead]), prod(x.shape[lead:]))
    if matrix is None or not all(tensor.is_contiguous() for name, tensor in tensors.items() if name != "x"):
        return None
    return {"x": matrix, **{name: tensor.view(-1) for name, tensor in tensors.items() if name != "x"}}


def flattened(x: Tensor, M: int, N: int) -> Tensor | None:
    """Return a view of x as M rows of N elements without gaps inside of a row, or None."""
    try:
        matrix = x.view(M, N)
    except RuntimeError:
        return None
    return matrix if N == 1 or matrix.stride(1) == 1 else None


def of_everything(x: Tensor, in_order: bool) -> Tensor | None:
    """Return a view of x as one row if it is dense, as several if one is too long or there are gaps, or None.

    Args:
        in_order: elements keep their order; without it the dims may have any.
    """
    if not in_order:
        x = x.permute(sorted(range(x.ndim), key=x.stride, reverse=True))
    if x.is_contiguous():
        return x.view(equal_rows(x.numel(), MAX_ROW), -1)
    for lead in range(1, x.ndim):
        if (matrix := flattened(x, prod(x.shape[:lead]), prod(x.shape[lead:]))) is not None:
            return matrix
    return None


def write_empty(tensors: Tensors, kind: str, **attributes: Any) -> object:
    """Write the results of no elements, which max and min do not have."""
    return tensors["out"].fill_(OF_NOTHING.get(kind, nan))


CALL = OpCall(
    kernel=KERNEL,
    function=reduce,
    takes_tensors="x out! indices?!",
    takes_attributes={"kind": "sum", "axis": "columns", "lead": 1},
    shapes=shapes,
    values=lambda tensors, **attributes: {
        "M": tensors["x"].shape[0],
        "N": tensors["x"].shape[1],
        "dtype": tensors["x"].dtype,
        "index": "indices" in tensors,
    },
    viewed=viewed,
    own_dtypes={"indices": ("int64",)},
    write_empty=write_empty,
)
launch = in_torch(CALL)
