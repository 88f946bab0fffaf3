"""Tensors of a call that share memory."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from tuner.kernels.overlap import shares_memory
from tuner.triton.refusal import CannotCapture


def shared(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Return, for each tensor that equals an earlier one in address, shape, strides and dtype, the name of that one.

    Slices of one tensor that have no element in common, such as `q`, `k` and `v` of one `qkv`, share nothing.

    Raises:
        CannotCapture: two tensors overlap partly.
    """
    same: dict[str, str] = {}
    for place, (name, x) in enumerate(tensors.items()):
        for other, y in list(tensors.items())[:place]:
            if other in same or not shares_memory(x, y):
                continue
            if _are_same(x, y):
                same[name] = other
                break
            raise CannotCapture(
                f"tensors of a captured call are the same or share no memory, and {name} overlaps {other} partly; "
                "pass a copy of one"
            )
    return same


def _are_same(x: Tensor, y: Tensor) -> bool:
    return (x.data_ptr(), x.shape, x.stride(), x.dtype) == (y.data_ptr(), y.shape, y.stride(), y.dtype)
