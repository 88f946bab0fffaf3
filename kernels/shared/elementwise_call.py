"""Tensors of elementwise ops as the rows that their kernels take, whatever their rank and their order of dims."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from torch import Tensor

from tuner.kernels.calling import Tensors, shape
from tuner.kernels.shared.elementwise import LONGEST_ROW
from tuner.kernels.spec import cdiv

MOST_TRIED = 4096
"""Number of divisors that are tried for elements that one row does not hold."""
Run = tuple[int, tuple[int, ...]]
"""A size, and the stride of each tensor along it."""


def same_shapes(tensors: Tensors) -> dict[str, tuple[int, ...]]:
    """Return the shape of the first tensor for all others."""
    first, *others = tensors
    return dict.fromkeys(others, shape(tensors[first]))


def as_rows(tensors: Tensors) -> Tensors | None:
    """Return views (N,), or (M, N) if rows have gaps; None unless there is one distance between rows in each tensor.

    Tensors without gaps in the same order of dims are one row, or several equal ones if it is too long.
    """
    runs = merged(*tensors.values())
    if len(runs) == 1 and runs[0][0] > LONGEST_ROW:
        runs = _divided(*runs[0])
    if not runs or any(stride != 1 for stride in runs[-1][1]):
        runs.append((1, (1,) * len(tensors)))
    if len(runs) > 2:
        return None
    sizes = tuple(size for size, _ in runs)
    strides = zip(*(strides for _, strides in runs), strict=True)
    return {
        name: tensor.as_strided(sizes, steps) for (name, tensor), steps in zip(tensors.items(), strides, strict=True)
    }


def _divided(size: int, strides: tuple[int, ...]) -> list[Run]:
    """Return a dim as rows of at most `LONGEST_ROW` elements, or as it is if it has no such divisor."""
    rows = equal_rows(size, LONGEST_ROW)
    return [(rows, tuple(size // rows * stride for stride in strides)), (size // rows, strides)]


def equal_rows(size: int, longest: int) -> int:
    """Return the least number of equal rows of at most `longest` elements, or 1 if no number that is tried divides."""
    fewest = max(1, cdiv(size, longest))
    return next((rows for rows in range(fewest, fewest + MOST_TRIED) if size % rows == 0), 1)


def merged(*tensors: Tensor) -> list[Run]:
    """Return the dims of tensors of one shape, outermost first, with those merged that are one dim in each tensor.

    The order is that of the last tensor's strides, which is written, so that each of its elements has a place of its
    own. Dims of size 1 are left out.
    """
    strides = list(zip(*(tensor.stride() for tensor in tensors), strict=True))
    dims = [(size, steps) for size, steps in zip(tensors[-1].shape, strides, strict=True) if size != 1]
    runs: list[Run] = []
    for size, steps in sorted(dims, key=lambda run: run[1][-1]):
        if runs and _follows(steps, runs[0]):
            runs[0] = (size * runs[0][0], runs[0][1])
        else:
            runs.insert(0, (size, steps))
    return runs


def _follows(steps: tuple[int, ...], inner: Run) -> bool:
    """Return whether a dim with these strides begins where an inner one ends, in each tensor."""
    size, strides = inner
    return all(step == stride * size for step, stride in zip(steps, strides, strict=True))


def row_values(x: Tensor) -> Mapping[str, object]:
    """Return the dims and the dtype of a problem, from a tensor (N,) or (M, N)."""
    return {"N": x.shape[-1], "M": prod(x.shape[:-1]), "dtype": x.dtype}
