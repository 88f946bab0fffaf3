"""`tuner.ops.transpose`: its tensors, the problem that they are, and the custom op that torch traces."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad

from tuner.kernels.calling import (
    NOT_STRIDED,
    PLAIN,
    OpCall,
    check_strided,
    is_recording,
    is_tracing,
    prepare,
    prepared,
    refuse_gradient,
    refuse_tangents,
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
    try:
        if out is None:
            out = torch.empty(x.shape[::-1], dtype=x.dtype, device=x.device)
        gradient = (x.requires_grad or out.requires_grad) and is_recording()
        if is_tracing() or not (type(x) in PLAIN and type(out) in PLAIN):
            refuse_gradient(gradient)
            _in_torch(x, out)
            return out
        if forward_ad._current_level >= 0:
            refuse_tangents("transpose", {"x": x, "out": out})
        x_at, out_at = x.data_ptr(), out.data_ptr()
        key = (
            transpose, gradient,
            x.shape, x.stride(), x.dtype, x.get_device(), x_at & 15, x.is_neg(), x.is_conj(),
            out.shape, out.stride(), out.dtype, out.get_device(), out_at & 15, out.is_neg(), out.is_conj(),
        )  # fmt: skip
    except NOT_STRIDED:
        check_strided("transpose", {"x": x, "out": x if out is None else out})
        raise
    found = prepared.get(key)
    if found is None or found[1] < out_at - x_at < found[2]:
        found = prepare(CALL, key, {"x": x, "out": out}, gradient)
    found[0]((x_at, out_at))
    return out


@torch.library.custom_op("tuner::transpose", mutates_args=("out",))
def _in_torch(x: Tensor, out: Tensor) -> None:
    CALL.run_in_torch({"x": x, "out": out})


@_in_torch.register_fake
def _(x: Tensor, out: Tensor) -> None:
    CALL.check({"x": x, "out": out})


def passed_as(dtype: torch.dtype) -> torch.dtype:
    """Return the integer of the same width for a dtype that the kernel does not know: elements only move."""
    return dtype if short_name(dtype) in KERNEL.signature.dtypes else _INTEGERS.get(dtype.itemsize, dtype)


CALL = OpCall(
    kernel=KERNEL,
    function=transpose,
    out_shape=lambda tensors: shape(tensors["x"])[::-1],
    values=lambda tensors: {"M": tensors["x"].shape[0], "N": tensors["x"].shape[1], "dtype": tensors["x"].dtype},
    passed_as=passed_as,
    takes="elements of 1, 2, 4 or 8 bytes",
)
