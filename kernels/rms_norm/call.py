"""`tuner.ops.rms_norm`: its tensors, and the problem that they are."""

from __future__ import annotations

from typing import overload

from torch import Tensor

from tuner.errors import UsageError
from tuner.kernels.calling import OpCall, Tensors, empty_like, in_torch
from tuner.kernels.rms_norm.definition import KERNEL
from tuner.kernels.shared.rows_call import row_shapes, row_views


@overload
def rms_norm(
    x: Tensor, weight: Tensor | None = None, residual: None = None, *, eps: float = ..., out: Tensor | None = None
) -> Tensor: ...


@overload
def rms_norm(
    x: Tensor,
    weight: Tensor | None,
    residual: Tensor,
    *,
    eps: float = ...,
    out: Tensor | None = None,
    residual_out: Tensor | None = None,
) -> tuple[Tensor, Tensor]: ...


def rms_norm(
    x: Tensor,
    weight: Tensor | None = None,
    residual: Tensor | None = None,
    *,
    eps: float = 1e-6,
    out: Tensor | None = None,
    residual_out: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Return x / sqrt(mean(x^2) + eps) * weight over the last dim of x (..., N), with sums in fp32.

    With a residual of x's shape, x + residual is rounded to the dtype and normalised, and returned as a second tensor.
    A vector is one row. A copy is made if rows have gaps inside, or several strides between them.

    Args:
        x, weight, residual: of one dtype: bf16, fp16 or fp32. The weight is (N,).
        out: may be x.
        residual_out: may be residual.

    Raises:
        UsageError: as `gemm`.
    """
    if out is None:
        out = empty_like("rms_norm", x)
    if residual is not None and residual_out is None:
        residual_out = empty_like("rms_norm", residual)
    launch(x, weight, residual, out, residual_out, eps)
    return out if residual_out is None else (out, residual_out)


def shapes(tensors: Tensors) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all tensors but x. Raises UsageError for a residual_out without a residual."""
    if "residual_out" in tensors and "residual" not in tensors:
        raise UsageError("rms_norm writes residual_out if there is a residual, and there is none; give residual too")
    return row_shapes("rms_norm", tensors)


CALL = OpCall(
    kernel=KERNEL,
    function=rms_norm,
    takes_tensors="x weight? residual? out! residual_out?!",
    shapes=shapes,
    values=lambda tensors: {
        "M": tensors["x"].shape[0],
        "N": tensors["x"].shape[1],
        "dtype": tensors["x"].dtype,
        "weight": "weight" in tensors,
        "residual": "residual" in tensors,
    },
    viewed=row_views,
    in_place=(("out", "x"), ("residual_out", "residual")),
)
launch = in_torch(CALL)
