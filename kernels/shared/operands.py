"""Shapes of the operands of a matrix product, checked."""

from __future__ import annotations

from torch import Tensor

from tuner.errors import UsageError
from tuner.kernels.calling import Tensors, shape


def product_shape(op: str, tensors: Tensors) -> tuple[int, int]:
    """Return (M, N) of a (M, K) times b (K, N). Raises UsageError if they have another K each."""
    a, b = tensors["a"], tensors["b"]
    if a.shape[1] != b.shape[0]:
        raise UsageError(
            f"{op} multiplies a (M, K) by b (K, N), not {shape(a)} by {shape(b)}; a matrix can be transposed with .t()"
        )
    return (a.shape[0], b.shape[1])


def out_shape(a: Tensor, b: Tensor) -> tuple[int, ...]:
    """Return (M, N) of a (M, K) times b (K, N), or () if they are not matrices, which the call refuses."""
    return (a.shape[0], b.shape[1]) if a.ndim == b.ndim == 2 else ()
