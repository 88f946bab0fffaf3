"""`tuner.ops.gemm`: its tensors, and the problem that they are."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import gelu, silu

from tuner.errors import UsageError
from tuner.kernels.calling import OpCall, Tensors, check_matrices, empty, in_torch, shape
from tuner.kernels.gemm.definition import KERNEL
from tuner.kernels.shared.operands import out_shape, product_shape
from tuner.kernels.shared.product_rows import LONGEST_ROW

_matmul_setting = torch.backends.cuda.matmul.__getattr__
"""Reads an attribute of `torch.backends.cuda.matmul` in a third of the time of the attribute itself."""


def gemm(
    a: Tensor, b: Tensor, out: Tensor | None = None, *, bias: Tensor | None = None, activation: str = "none"
) -> Tensor:
    """Return out (M, N) = activation(a (M, K) @ b (K, N) + bias (N,)), summed in fp32, of tensors with any strides.

    Products of fp32 are computed as `torch.backends.cuda.matmul.fp32_precision` says: in `tf32`, else in `ieee`.

    Args:
        a, b, out, bias: of one dtype: bf16, fp16 or fp32.
        activation: `none`, `silu` or `gelu`.

    Raises:
        UsageError: shapes, dtypes or devices do not fit, the tensors are not on a GPU, or a gradient is asked for.
    """
    if out is None:
        out = empty("gemm", out_shape, a=a, b=b)
    launch(a, b, out, bias, activation)
    return out


def shapes(tensors: Tensors, activation: str) -> dict[str, tuple[int, ...]]:
    """Return the shape of out, (M, N). Raises UsageError if a, b and the bias do not fit each other."""
    check_matrices("gemm", {name: tensor for name, tensor in tensors.items() if name != "bias"})
    M, N = product_shape("gemm", tensors)
    bias = tensors.get("bias")
    if bias is not None and shape(bias) != (N,):
        raise UsageError(
            f"gemm adds a bias with an element for each column, of shape {(N,)} here, not {shape(bias)}; reshape it"
        )
    return {"out": (M, N)}


def values(tensors: Tensors, activation: str) -> dict[str, object]:
    """Return dims, dtype and attributes; an input whose columns are contiguous is a `t` in the layout."""
    a, b = tensors["a"], tensors["b"]
    letters = "".join("t" if x.stride(0) == 1 and x.stride(1) >= x.shape[0] > 1 else "n" for x in (a, b))
    found = {"M": a.shape[0], "N": b.shape[1], "K": a.shape[1], "dtype": a.dtype}
    found |= {"layout": letters, "bias": "bias" in tensors}
    return found | ({"precision": precision()} if a.dtype == torch.float32 else {})


def precision() -> str:
    """Return how fp32 products are computed, as torch is set for its own."""
    return "tf32" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "ieee"


def accepts(name: str, tensor: Tensor) -> bool:
    """Return whether the kernel takes these strides: any, while a step along K is a 32-bit offset."""
    if tensor.is_contiguous():
        return name != "b" or len(tensor) == 1 or tensor.shape[1] <= LONGEST_ROW
    if name == "bias":
        return False
    if name == "a" and tensor.t().is_contiguous():
        return len(tensor) <= LONGEST_ROW
    return name == "out" or bool(tensor.stride(1 if name == "a" else 0) < _stride_limit())


def laid_out(name: str, tensor: Tensor) -> Tensor:
    """Return a copy without gaps; a b of the longest rows is copied so that it lies along K."""
    long = name == "b" and tensor.shape[1] > LONGEST_ROW
    return tensor.t().contiguous().t() if long else tensor.contiguous()


@cache
def _stride_limit() -> int:
    """Return the stride along K from which the deepest step is a 64-bit offset."""
    (steps,) = (knob.choices for knob in KERNEL.signature.knobs if knob.name == "BLOCK_K")
    return 2**31 // max(int(str(step)) for step in steps)


def write_empty(tensors: Tensors, activation: str = "none") -> None:
    """Write the product of matrices without elements (K = 0): the activation of the bias."""
    zero = torch.zeros((), dtype=torch.float32, device=tensors["out"].device)
    bias = tensors.get("bias", zero).float()
    tensors["out"].copy_({"none": bias, "silu": silu(bias), "gelu": gelu(bias)}[activation])


CALL = OpCall(
    kernel=KERNEL,
    function=gemm,
    takes_tensors="a b out! bias?",
    takes_attributes={"activation": "none"},
    shapes=shapes,
    values=values,
    accepts=accepts,
    laid_out=laid_out,
    setting=lambda dtype: _matmul_setting("fp32_precision") if dtype is torch.float32 else "",
    write_empty=write_empty,
)
launch = in_torch(CALL)
