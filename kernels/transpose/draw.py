"""Random problems of transpose: weights, activations, images as rows of pixels, and free sizes."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from tuner.kernels.shared.draws import at_most, log_uniform, size
from tuner.kernels.spec import itemsize

DTYPES = {"bf16": 10, "fp16": 3, "fp32": 3, "int8": 2, "int16": 1, "int32": 1, "int64": 1}
"""Dtypes with their weights."""
FEWEST = 4096
"""Number of elements that a problem has about at least."""


def draw(random: Random) -> Mapping[str, object]:
    """Return rows and columns: those of a weight, of tokens by channels, of channels by pixels, or any sizes."""
    dtype = random.choices([*DTYPES], [*DTYPES.values()])[0]
    kind = random.choice(("weight", "tokens", "pixels", "free", "free"))
    if kind == "weight":
        M, N = (log_uniform(random, 1024, 32768, multiple=random.choice((64, 128))) for _ in range(2))
    elif kind == "tokens":
        M, N = size(random, 16, 65536), log_uniform(random, 512, 16384, multiple=64)
    elif kind == "pixels":
        side = log_uniform(random, 14, 512)
        M, N = log_uniform(random, 3, 2048), side * side
    else:
        M, N = size(random, 16, 131_072), size(random, 16, 131_072)
    M = max(M, FEWEST // N)
    return {"M": at_most(M, 2 * N * itemsize(dtype)), "N": N, "dtype": dtype}
