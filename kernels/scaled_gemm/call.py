"""`tuner.ops.scaled_gemm`: its tensors, and the problem that they are."""

from __future__ import annotations

import torch
from torch import Tensor

from tuner.errors import UsageError
from tuner.kernels.calling import OpCall, Tensors, check_matrices, empty, in_torch, shape
from tuner.kernels.overlap import extent
from tuner.kernels.scaled_gemm.definition import KERNEL
from tuner.kernels.scaled_gemm.space import BLOCK
from tuner.kernels.shared.operands import out_shape, product_shape
from tuner.kernels.spec import MAX_SIZE, cdiv, dtype_name


def scaled_gemm(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    out: Tensor | None = None,
    *,
    out_dtype: torch.dtype = torch.bfloat16,
    accumulate: str = "fp32",
) -> Tensor:
    """Return out (M, N) = a (M, K) @ b (K, N) of 8-bit floats (e4m3) times their scales, summed in fp32.

    Both are read along K: a by its rows, b by its columns, which is how the transpose of an `nn.Linear`'s weight lies.
    Tensors with other strides are copied.

    Args:
        scale_a, scale_b: fp32; one number each, or (M, K / 128) and (K / 128, N / 128), rounded up. A scale_a in
            columns (`stride(0) == 1`, as torch requires it), each aligned to 16 bytes, is never copied.
        out_dtype: bfloat16 or float16, if `out` is omitted.
        accumulate: `fp32`, or `fast`, which leaves sums to Hopper's tensor cores with fewer bits; with scales of
            blocks, sums are always in fp32.

    Raises:
        UsageError: as `gemm`, or the card multiplies no 8-bit floats.
    """
    if out is None:
        out = empty("scaled_gemm", out_shape, out_dtype, a=a, b=b)
    launch(a, b, scale_a, scale_b, out, accumulate)
    return out


def shapes(tensors: Tensors, accumulate: str) -> dict[str, tuple[int, ...]]:
    """Return the shape of out, (M, N). Raises UsageError if a, b and the scales do not fit each other."""
    check_matrices("scaled_gemm", {name: tensors[name] for name in ("a", "b", "out")})
    M, N = product_shape("scaled_gemm", tensors)
    if not of_tensors(tensors):
        along = cdiv(tensors["a"].shape[1], BLOCK)
        for name, expected in (("scale_a", (M, along)), ("scale_b", (along, cdiv(N, BLOCK)))):
            if shape(tensors[name]) != expected:
                raise UsageError(
                    f"scaled_gemm takes one scale for a and one for b, or those of blocks of {BLOCK}, "
                    f"and {name} of shape {expected} here, not {shape(tensors[name])}; it can be transposed with .t()"
                )
    return {"out": (M, N)}


def of_tensors(tensors: Tensors) -> bool:
    """Return whether each factor has one scale; a factor of a single block is scaled alike either way."""
    return bool(tensors["scale_a"].numel() == tensors["scale_b"].numel() == 1)


def values(tensors: Tensors, accumulate: str) -> dict[str, object]:
    """Return dims, dtypes and the kind of the scales."""
    a, b, out = tensors["a"], tensors["b"], tensors["out"]
    found = {"M": a.shape[0], "N": b.shape[1], "K": a.shape[1], "dtype": a.dtype}
    return found | {"scales": "tensor" if of_tensors(tensors) else "block", "out_dtype": dtype_name(out.dtype)}


def accepts(name: str, tensor: Tensor) -> bool:
    """Return whether the kernel takes these strides.

    Elements of a factor are neighbours along K. Scales have any strides, while their offsets fit 32 bits.
    """
    along_k = {"a": 1, "b": 0}.get(name)
    if along_k is not None:
        return bool(tensor.shape[along_k] == 1 or tensor.stride(along_k) == 1)
    return name == "out" or extent(tensor) // tensor.element_size() <= MAX_SIZE


def laid_out(name: str, tensor: Tensor) -> Tensor:
    """Return a copy whose elements are neighbours along K."""
    return tensor.t().contiguous().t() if name == "b" else tensor.contiguous()


CALL = OpCall(
    kernel=KERNEL,
    function=scaled_gemm,
    takes_tensors="a b scale_a scale_b out!",
    takes_attributes={"accumulate": "fp32"},
    shapes=shapes,
    values=values,
    own_dtypes={"scale_a": ("fp32",), "scale_b": ("fp32",), "out": ("bf16", "fp16")},
    accepts=accepts,
    laid_out=laid_out,
)
launch = in_torch(CALL)
