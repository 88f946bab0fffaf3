"""Overlap of tensors in memory, by their addresses, shapes and strides."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from torch import Tensor


def extent(tensor: Tensor) -> int:
    """Return the bytes from a tensor's first element to the end of its last one; 0 if it has no elements."""
    if tensor.numel() == 0:
        return 0
    steps = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (1 + steps) * tensor.element_size()


def shares_memory(x: Tensor, y: Tensor) -> bool:
    """Return whether an element of one tensor lies where one of the other does.

    It is exact for blocks that are cut out of one matrix with the same steps, such as `x[::2]` and `x[1::2]`. Of other
    views it may report some whose elements only lie between each other's.
    """
    if extent(x) == 0 or extent(y) == 0:
        return False
    apart = y.data_ptr() - x.data_ptr()
    return all(
        _may_coincide(apart, run_x, run_y, gcd(*outer_x, *outer_y))
        for run_x, outer_x in _runs(x)
        for run_y, outer_y in _runs(y)
    )


def _runs(tensor: Tensor) -> Iterator[tuple[int, list[int]]]:
    """Yield views of a tensor as runs of bytes at multiples of outer strides: from single elements to one long run."""
    width = tensor.element_size()
    pairs = zip(tensor.stride(), tensor.shape, strict=True)
    dims = sorted((stride * width, size) for stride, size in pairs if size > 1 and stride > 0)
    run = width
    yield run, [stride for stride, _ in dims]
    for inner, (stride, size) in enumerate(dims, start=1):
        run += stride * (size - 1)
        yield run, [outer for outer, _ in dims[inner:]]


def _may_coincide(apart: int, run_x: int, run_y: int, step: int) -> bool:
    """Return whether runs overlap that start `apart` bytes from each other, give or take any multiple of `step`."""
    if step == 0:
        return -run_y < apart < run_x
    return (apart + run_y - 1) // step * step > apart - run_x
