"""Random sizes and dtypes as in models, for the function `draw` of a kernel. Plain Python."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

DTYPES: Mapping[str, int] = {"bf16": 7, "fp16": 2, "fp32": 1}
"""Dtypes of drawn problems with their weights."""


def log_uniform(random: Random, low: int, high: int, multiple: int = 1) -> int:
    """Return a log-uniform multiple from `low` to `high` (inclusive)."""
    least, most = -(-low // multiple), high // multiple
    size = round(least * ((most + 1) / least) ** random.random() - 0.5)
    return multiple * min(max(size, least), most)


def odd_size(random: Random, low: int, high: int) -> int:
    """Return an odd size from `low` to `high` (an even `high` is left out), log-uniform."""
    return min(log_uniform(random, low, high) | 1, (high - 1) | 1)


def size(random: Random, low: int, high: int) -> int:
    """Return a log-uniform size: a third of them odd, a third multiples of 64 if possible, a third free."""
    kind = random.randrange(3)
    if kind == 0:
        return odd_size(random, low, high)
    return log_uniform(random, low, high, 64 if kind == 1 and high // 64 > (low - 1) // 64 else 1)


def dtype(random: Random) -> str:
    """Return bf16 mostly, or fp16 or fp32."""
    return random.choices([*DTYPES], [*DTYPES.values()])[0]


def at_most(size: int, bytes_each: int, most_bytes: int = 2**30) -> int:
    """Return the size, or the largest one that fits `most_bytes` if one unit of it takes `bytes_each`."""
    return max(1, min(size, most_bytes // bytes_each))
