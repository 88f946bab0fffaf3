"""Random problems of attention, as models have them: training, prefill, chunks of a prompt, and decoding."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from tuner.kernels.shared.draws import at_most, log_uniform, size

HEADS = ((8, 8), (12, 12), (16, 16), (20, 20), (28, 4), (32, 8), (32, 4), (40, 8), (40, 10), (64, 8), (48, 1))
"""Heads of q, and of k, of models."""
HEAD_SIZES: Mapping[int, int] = {64: 3, 80: 1, 96: 1, 128: 8, 192: 1, 256: 2}
"""Head sizes with their weights."""
MOST_PAIRS = 2**37
"""Most pairs of rows and keys of all heads."""
MOST_BYTES = 7 * 2**27
"""Most bytes of q, k, v and out, 7/8 of 1 GiB."""


def draw(random: Random) -> Mapping[str, object]:
    """Return the values of a problem: whole sequences, chunks over a cache, or a few rows over a cache."""
    kind = random.choice(("whole", "whole", "packed", "cross", "chunk", "decode", "decode"))
    H, G = random.choice(HEADS)
    D = random.choices([*HEAD_SIZES], [*HEAD_SIZES.values()])[0]
    values: dict[str, object] = {"H": H, "G": G, "D": D, "dtype": random.choices(("bf16", "fp16"), (4, 1))[0]}
    if kind in ("whole", "packed"):
        M = N = size(random, 64, 16384)
        values |= {"causal": random.random() < 0.7, "packed": kind == "packed"}
    elif kind == "cross":
        M, N = size(random, 64, 8192), size(random, 16, 8192)
    else:
        N = size(random, 1024, 131_072)
        M = min(N, 256 if kind == "chunk" else random.choice((1, 1, 1, 2, 4, 8, 16)))
        values |= {"causal": M > 1, "page": random.choice((0, 0, 16, 16, 32, 64, 128, 256))}
        if not values["page"] and random.random() < 0.5:
            values["lengths"] = True
    if values.get("causal") and random.random() < 0.15:
        values["window"] = random.choice(("128", "1024", "4096"))
    values |= {name: True for name in ("capped", "lse") if random.random() < 0.1}
    B = log_uniform(random, 1, 128 if kind == "decode" else 16)
    while (each := sequence_bytes(H, G, M, N, D)) > MOST_BYTES:
        M, N = -(-M // 2), -(-N // 2)
    B = min(at_most(B, each + 8 * H * M, MOST_BYTES), MOST_PAIRS // (H * M * N))
    return values | {"B": max(1, B), "M": M, "N": N}


def sequence_bytes(H: int, G: int, M: int, N: int, D: int) -> int:
    """Return the bytes of q, k, v and out of a sequence; its last page may have 255 keys more."""
    return 4 * D * (H * M + G * (N + 255))
