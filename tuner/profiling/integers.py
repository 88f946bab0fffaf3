"""Integer arithmetic of PTX on the threads of a program, as numpy arrays of 64-bit integers.

A register of fewer bits holds its value as a signed number. An array of one element is the same in all threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Lanes = NDArray[Any]
"""Values of one register, by thread: integers, or booleans of a predicate."""
_SIGNED = {16: np.int16, 32: np.int32, 64: np.int64, 8: np.int8}


def bits_of(kind: str) -> int:
    """Return the number of bits of a type: 32 for `s32`, 1 for `pred`, 0 for floats and other types."""
    if kind == "pred":
        return 1
    return int(kind[1:]) if kind[:1] in "bsu" and kind[1:].isdigit() and int(kind[1:]) in _SIGNED else 0


def wrapped(value: Lanes, bits: int) -> Lanes:
    """Return the low bits as a signed number."""
    return value if bits == 64 or value.dtype == bool else value.astype(_SIGNED[bits]).astype(np.int64)


def read_as(value: Lanes, kind: str) -> Lanes:
    """Return the low bits of a register as numbers of a type; those of `u64` stay signed."""
    if value.dtype == bool:
        return value
    if kind == "pred":
        found: Lanes = value != 0
        return found
    bits = bits_of(kind)
    return value & ((1 << bits) - 1) if kind[0] == "u" and bits < 64 else wrapped(value, bits)


def compare(name: str, a: Lanes, b: Lanes, kind: str) -> Lanes | None:
    """Return a comparison such as `lt` of two values of a type; None if there is no such comparison."""
    if kind == "u64":
        a, b = a.view(np.uint64), b.view(np.uint64)
    found = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}.get(name, name)
    return _COMPARISONS[found](a, b) if found in _COMPARISONS else None


def _divided(a: Lanes, b: Lanes) -> Lanes | None:
    """Return quotients rounded towards 0, as the card computes them."""
    if not b.all():
        return None
    quotient: Lanes = np.abs(a) // np.abs(b)
    return np.where((a < 0) != (b < 0), -quotient, quotient)


def _remainder(a: Lanes, b: Lanes) -> Lanes | None:
    quotient = _divided(a, b)
    return None if quotient is None else a - quotient * b


def shifted_left(a: Lanes, count: Lanes, bits: int) -> Lanes:
    """Return a left shift; 0 if the count is `bits` or more."""
    return np.where(count < bits, a << np.minimum(count, bits - 1), 0)


def shifted_right(a: Lanes, count: Lanes) -> Lanes:
    """Return a right shift, which keeps the sign of signed values."""
    return a >> np.minimum(count, 63)


_COMPARISONS: Mapping[str, Callable[[Any, Any], Lanes]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip
BINARY: Mapping[str, Callable[[Any, Any], Lanes | None]] = {
    "add": np.add, "sub": np.subtract, "min": np.minimum, "max": np.maximum, "div": _divided, "rem": _remainder,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip
"""Operations on two values of the same type."""
