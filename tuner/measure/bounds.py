"""Bounds of memory in Triton's interpreter: a load or a store outside the tensors of a launch is an error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

_MASKS = {"create_masked_load": 1, "create_masked_store": 2, "create_atomic_rmw": 3}
"""Methods of the interpreter's builder that reach memory, with the place of the mask among their arguments."""
_POINTERS = {"create_atomic_rmw": 1}
"""Places of the pointers, where that is not the first."""


class OutOfBounds(Exception):
    """A program reads or writes an element that is in none of the launch's tensors."""


@contextmanager
def within(tensors: Iterable[torch.Tensor]) -> Iterator[None]:
    """Raise OutOfBounds in a kernel that the interpreter runs if it reaches memory outside these tensors."""
    from triton.runtime.interpreter import interpreter_builder as builder

    ranges = sorted((tensor.data_ptr(), tensor.data_ptr() + _span_bytes(tensor)) for tensor in tensors)
    starts, ends = (np.array(side, np.uint64) for side in zip(*ranges, strict=True))
    ends = np.maximum.accumulate(ends)  # tensors may be views of each other
    kept = {name: getattr(builder, name) for name in _MASKS if hasattr(builder, name)}
    for name, method in kept.items():
        setattr(builder, name, _checked(name, method, starts, ends))
    try:
        yield
    finally:
        for name in kept:
            delattr(builder, name)


def _checked(name: str, method: Callable[..., Any], starts: Any, ends: Any) -> Callable[..., Any]:
    def checked(*given: Any, **named: Any) -> Any:
        pointers, mask = given[_POINTERS.get(name, 0)], given[_MASKS[name]]
        at = np.asarray(pointers.data, np.uint64)[np.broadcast_to(np.asarray(mask.data, bool), pointers.data.shape)]
        size = np.uint64(max(1, pointers.get_element_ty().primitive_bitwidth // 8))
        index = np.searchsorted(starts, at, side="right")
        outside = (index == 0) | (at + size > ends[np.maximum(index, 1) - 1])
        if outside.any():
            what, count = "reads" if name == "create_masked_load" else "writes", int(outside.sum())
            raise OutOfBounds(f"{what} {count:,} element{'s' * (count > 1)} outside its tensors; add a mask")
        return method(*given, **named)

    return checked


def _span_bytes(tensor: torch.Tensor) -> int:
    """Return the bytes from the first element to the end of the last."""
    if tensor.numel() == 0:
        return 0
    steps = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return int(1 + steps) * int(tensor.element_size())
