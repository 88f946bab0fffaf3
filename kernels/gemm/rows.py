"""Contiguous rows of a, b and out, and which of them are aligned to 16 bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from math import gcd

from tuner.kernels.shared.tiling import ALIGNED_BYTES, LINE_BYTES
from tuner.kernels.spec import Problem, cdiv, itemsize

LONGEST_ROW = 2**26 - 1
"""Most elements from one step along K to the next."""


def transposed(problem: Problem) -> tuple[bool, bool]:
    """Return whether a, and whether b, is the transpose of a contiguous matrix."""
    a, b = problem["layout"]
    return a == "t", b == "t"


def lying(problem: Problem) -> Mapping[str, tuple[str, str]]:
    """Return the dims of a, b and out as they lie in memory: that of their rows, and that along a row."""
    a_is_t, b_is_t = transposed(problem)
    return {"a": ("K", "M") if a_is_t else ("M", "K"), "b": ("N", "K") if b_is_t else ("K", "N"), "out": ("M", "N")}


@lru_cache(maxsize=256)
def unaligned(problem: Problem) -> tuple[str, ...]:
    """Return which of a, b and out have rows that descriptors cannot describe: of no multiple of 16 bytes."""
    size = itemsize(problem.dtype)
    return tuple(name for name, (_, along) in lying(problem).items() if problem[along] * size % ALIGNED_BYTES)


def at_once(problem: Problem, name: str) -> int:
    """Return the elements of an operand's row that one access takes: up to 16 bytes, and a divisor of the row."""
    return gcd(ALIGNED_BYTES // itemsize(problem.dtype), problem[lying(problem)[name][1]])


@lru_cache(maxsize=256)
def may_align(problem: Problem) -> bool:
    """Return whether operands can be copied to aligned rows: at least one is not aligned, and no row is too long.

    A row of a copy is at most one cache line longer.
    """
    rows = [problem[lying(problem)[name][1]] for name in unaligned(problem)]
    return bool(rows) and max(rows) <= LONGEST_ROW - LINE_BYTES // itemsize(problem.dtype)


def padded(problem: Problem) -> Problem:
    """Return the problem with unaligned rows lengthened to a multiple of 16 bytes.

    It has as many tiles and steps, since their sides are multiples of 16 bytes.
    """
    each = ALIGNED_BYTES // itemsize(problem.dtype)
    odd = {lying(problem)[name][1] for name in unaligned(problem)}
    dims = tuple((name, cdiv(size, each) * each if name in odd else size) for name, size in problem.dims)
    return replace(problem, dims=dims, text=f"{problem.text} with padding")
