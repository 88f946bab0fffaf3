"""`tuner.ops.layer_norm`: its tensors, and the problem that they are."""

from __future__ import annotations

from math import nan
from typing import Literal, overload

import torch
from torch import Tensor

from tuner.errors import UsageError
from tuner.kernels.calling import OpCall, Tensors, empty, empty_like, in_torch
from tuner.kernels.layer_norm.definition import KERNEL
from tuner.kernels.shared.rows_call import OF_ROWS, row_shapes, row_views


@overload
def layer_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    eps: float = ...,
    stats: Literal[False] = False,
    out: Tensor | None = None,
) -> Tensor: ...


@overload
def layer_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    eps: float = ...,
    stats: Literal[True],
    out: Tensor | None = None,
    mean: Tensor | None = None,
    rstd: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]: ...


def layer_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    eps: float = 1e-5,
    stats: bool = False,
    out: Tensor | None = None,
    mean: Tensor | None = None,
    rstd: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor, Tensor]:
    """Return (x - mean) / sqrt(var + eps) * weight + bias over the last dim of x (..., N), with sums in fp32.

    With `stats`, return out, mean and rstd = 1 / sqrt(var + eps); mean and rstd are fp32, of x's shape without its last
    dim. A vector is one row. A copy is made if rows have gaps inside, or several strides between them.

    Args:
        x, weight, bias: of one dtype: bf16, fp16 or fp32. Weight and bias are (N,).
        out: may be x.
        mean, rstd: tensors to write to, with `stats`.

    Raises:
        UsageError: as `gemm`.
    """
    if out is None:
        out = empty_like("layer_norm", x)
    if stats:
        mean = empty("layer_norm", lambda x: x.shape[:-1], torch.float32, x=x) if mean is None else mean
        rstd = empty("layer_norm", lambda x: x.shape[:-1], torch.float32, x=x) if rstd is None else rstd
    elif mean is not None or rstd is not None:
        raise UsageError("layer_norm writes mean and rstd with stats=True, not False; give it, or omit them")
    launch(x, weight, bias, out, mean, rstd, eps)
    return out if mean is None or rstd is None else (out, mean, rstd)


def write_empty(tensors: Tensors) -> None:
    """Write NaN, the statistics of rows without elements."""
    for name in OF_ROWS:
        tensors[name].fill_(nan)


CALL = OpCall(
    kernel=KERNEL,
    function=layer_norm,
    takes_tensors="x weight? bias? out! mean?! rstd?!",
    shapes=lambda tensors: row_shapes("layer_norm", tensors),
    values=lambda tensors: {
        "M": tensors["x"].shape[0],
        "N": tensors["x"].shape[1],
        "dtype": tensors["x"].dtype,
        "weight": "weight" in tensors,
        "bias": "bias" in tensors,
        "stats": "mean" in tensors,
    },
    viewed=row_views,
    in_place=(("out", "x"),),
    own_dtypes=dict.fromkeys(OF_ROWS, ("fp32",)),
    write_empty=write_empty,
)
launch = in_torch(CALL)
