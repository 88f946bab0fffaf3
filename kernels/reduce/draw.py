"""Random problems of the reductions: tokens, routers, vocabularies, gradients of weights, and free sizes."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from tuner.kernels.shared.draws import at_most, dtype, log_uniform, size
from tuner.kernels.spec import itemsize

WIDTHS = (64, 128, 256, 512, 768, 1024, 2048, 4096, 5120, 8192, 14336, 28672)
"""Sizes of heads, and widths of hidden layers."""
VOCABULARIES = (32000, 32768, 50257, 65536, 100352, 128256, 129280, 151936, 201088, 262144)
EXPERTS = (8, 16, 60, 64, 128, 160, 256, 384)
FEWEST = 2048
"""Fewest elements of a problem."""

MOST_BYTES = 2**30 - 2**12
"""Most bytes of a matrix with its results."""


def draw(random: Random) -> Mapping[str, object]:
    """Return sizes, kind and axis; of max and min half have an index."""
    kind, of = random.choice(("sum", "sum", "mean", "max", "min", "logsumexp")), dtype(random)
    axis = random.choice(("columns", "columns", "rows", "rows", "all"))
    where = random.choice(("tokens", "free", "free", "router", "vocabulary", "bias"))
    if axis == "all":
        M, N = 1, at_most(size(random, FEWEST, 2**29), itemsize(of), MOST_BYTES)
    elif where == "tokens":
        M, N = size(random, 1, 262_144), random.choice(WIDTHS)
    elif where == "router":
        M, N = size(random, 1, 262_144), random.choice(EXPERTS)
    elif where == "vocabulary":
        M, N = log_uniform(random, 1, 8192), random.choice(VOCABULARIES)
    elif where == "bias":
        M, N = log_uniform(random, 2, 64), size(random, 64, 4_194_304)
    else:
        M, N = size(random, 1, 262_144), size(random, 1, 262_144)
    M = at_most(max(M, -(-FEWEST // N)), N * itemsize(of) + 16, MOST_BYTES - 16 * N)
    values: dict[str, object] = {"M": M, "N": N, "dtype": of, "kind": kind, "axis": axis}
    if kind in ("max", "min"):
        values["index"] = random.random() < 0.5
    return values
