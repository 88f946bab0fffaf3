"""Random problems of softmax: attention, routers, vocabularies and free sizes."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from tuner.kernels.shared.draws import at_most, dtype, log_uniform, size
from tuner.kernels.spec import itemsize

ROUTED = (8, 16, 60, 64, 128, 160, 256, 384)
"""Expert counts of routers."""
VOCABULARIES = (32000, 32768, 50257, 65536, 100352, 128256, 129280, 151936, 201088, 262144)
FEWEST = 1024
"""Fewest elements of a problem."""


def draw(random: Random) -> Mapping[str, object]:
    """Return rows and columns: scores of attention, of a router, logits of a vocabulary, or any sizes."""
    kind, of = random.choice(("attention", "router", "vocabulary", "free", "free")), dtype(random)
    if kind == "attention":
        N = size(random, 16, 131_072)
        M = log_uniform(random, 1, 64) * log_uniform(random, 1, 4096)
    elif kind == "router":
        M, N = size(random, 1, 262_144), random.choice(ROUTED)
    elif kind == "vocabulary":
        M, N = log_uniform(random, 1, 8192), random.choice(VOCABULARIES)
    else:
        M, N = size(random, 1, 262_144), size(random, 1, 1_048_576)
    M = max(M, -(-FEWEST // N))
    return {"M": at_most(M, 2 * N * itemsize(of)), "N": N, "dtype": of}
