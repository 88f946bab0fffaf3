"""Contiguous rows of a, b and out of a product, and which of them are aligned to 16 bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from math import gcd
from typing import Any

from tuner.kernels.shared.tiling import ALIGNED_BYTES, LINE_BYTES
from tuner.kernels.spec import Problem, cdiv, itemsize

LONGEST_ROW = 2**26 - 1
"""Most elements from one step along K to the next."""


def transposed(problem: Problem) -> tuple[bool, bool]:
    """Return whether a, and whether b, is the transpose of a contiguous matrix. An op without layouts has nt."""
    a, b = problem.values.get("layout", "nt")
    return a == "t", b == "t"


def right_across_k(problem: Problem, swapped: bool) -> bool:
    """Return whether rows of the right factor lie across K.

    Args:
        swapped: whether out is computed as its transpose, so that a is the right factor.
    """
    a_is_t, b_is_t = transposed(problem)
    return a_is_t if swapped else not b_is_t


def lying(problem: Problem) -> Mapping[str, tuple[str, str]]:
    """Return the dims of a, b and out as they lie in memory: that of their rows, and that along a row."""
    a_is_t, b_is_t = transposed(problem)
    return {"a": ("K", "M") if a_is_t else ("M", "K"), "b": ("N", "K") if b_is_t else ("K", "N"), "out": ("M", "N")}


def dtype_of(problem: Problem, name: str) -> str:
    """Return the dtype of an operand: that of the problem, unless the output has its own."""
    return str(problem.values.get("out_dtype", problem.dtype)) if name == "out" else problem.dtype


@lru_cache(maxsize=256)
def unaligned(problem: Problem) -> tuple[str, ...]:
    """Return which of a, b and out have rows that descriptors cannot describe: of no multiple of 16 bytes."""
    return tuple(name for name, (_, along) in lying(problem).items() if problem[along] % _most_at_once(problem, name))


def elements_per_access(problem: Problem, name: str) -> int:
    """Return the elements of an operand's row that one access takes: up to 16 bytes, and a divisor of the row."""
    return gcd(_most_at_once(problem, name), problem[lying(problem)[name][1]])


def _most_at_once(problem: Problem, name: str) -> int:
    return ALIGNED_BYTES // itemsize(dtype_of(problem, name))


@lru_cache(maxsize=256)
def may_align(problem: Problem) -> bool:
    """Return whether operands can be copied to aligned rows: at least one is not aligned, and no row is too long.

    A row of a copy is at most one cache line longer.
    """
    rows = [problem[lying(problem)[name][1]] for name in unaligned(problem)]
    return bool(rows) and max(rows) <= LONGEST_ROW - LINE_BYTES // itemsize(problem.dtype)


def aligned_first(problem: Problem, config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the operands, of a, b and out, that a config copies. `tiles` writes out without a copy."""
    names = unaligned(problem) if config["ALIGN"] else ()
    return tuple(name for name in names if name != "out") if config["VARIANT"] == "tiles" else names


def loads_at_once(problem: Problem, config: Mapping[str, Any]) -> tuple[int, int]:
    """Return the number of elements of a, and of b, in one load of `tiles`: up to 16 bytes, a divisor of the row."""
    most, copies = ALIGNED_BYTES // itemsize(problem.dtype), aligned_first(problem, config)
    a, b = (most if name in copies else elements_per_access(problem, name) for name in ("a", "b"))
    return a, b


def stores_at_once(problem: Problem, config: Mapping[str, Any]) -> int | None:
    """Return the number of elements of the output in one store; None if 16 bytes."""
    if "out" not in unaligned(problem) or "out" in aligned_first(problem, config):
        return None
    return elements_per_access(problem, "out")


def copies_of(problem: Problem, config: Mapping[str, Any]) -> tuple[int, int]:
    """Return the number of bytes that a config copies, and of launches that copy them.

    Elements of one byte count as two, since a copy takes as many instructions for them.
    """
    copied, dims = aligned_first(problem, config), lying(problem)
    counts = ((problem[dims[name][0]] * problem[dims[name][1]], itemsize(dtype_of(problem, name))) for name in copied)
    return sum(count * max(2, size) for count, size in counts), len({name == "out" for name in copied})


def padded(problem: Problem) -> Problem:
    """Return the problem with unaligned rows lengthened to a multiple of 16 bytes.

    It has as many tiles and steps, since their sides are multiples of 16 bytes.
    """
    sizes = dict(problem.dims)
    for name in unaligned(problem):
        along, each = lying(problem)[name][1], _most_at_once(problem, name)
        sizes[along] = cdiv(sizes[along], each) * each
    return replace(problem, dims=tuple(sizes.items()), text=f"{problem.text} with padding")
