"""`tuner.ops.softmax`: its tensors, the problem that they are, and the custom op that torch traces."""

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
)
from tuner.kernels.softmax.definition import KERNEL


def softmax(x: Tensor, out: Tensor | None = None) -> Tensor:
    """Return the softmax over the rows of x (M, N); `out` may be x. A copy is made if rows have gaps.

    Raises:
        UsageError: as `gemm`.
    """
    try:
        if out is None:
            out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        gradient = (x.requires_grad or out.requires_grad) and is_recording()
        if is_tracing() or not (type(x) in PLAIN and type(out) in PLAIN):
            refuse_gradient(gradient)
            _in_torch(x, out)
            return out
        if forward_ad._current_level >= 0:
            refuse_tangents("softmax", {"x": x, "out": out})
        x_at, out_at = x.data_ptr(), out.data_ptr()
        key = (
            softmax, gradient, x_at == out_at,
            x.shape, x.stride(), x.dtype, x.get_device(), x_at & 15, x.is_neg(),
            out.shape, out.stride(), out.dtype, out.get_device(), out_at & 15, out.is_neg(),
        )  # fmt: skip
    except NOT_STRIDED:
        check_strided("softmax", {"x": x, "out": x if out is None else out})
        raise
    found = prepared.get(key)
    if found is None or found[1] < out_at - x_at < found[2]:
        found = prepare(CALL, key, {"x": x, "out": out}, gradient)
    found[0]((x_at, out_at))
    return out


@torch.library.custom_op("tuner::softmax", mutates_args=("out",))
def _in_torch(x: Tensor, out: Tensor) -> None:
    CALL.run_in_torch({"x": x, "out": out})


@_in_torch.register_fake
def _(x: Tensor, out: Tensor) -> None:
    CALL.check({"x": x, "out": out})


CALL = OpCall(
    kernel=KERNEL,
    function=softmax,
    out_shape=lambda tensors: shape(tensors["x"]),
    values=lambda tensors: {"M": tensors["x"].shape[0], "N": tensors["x"].shape[1], "dtype": tensors["x"].dtype},
    in_place=True,
)
