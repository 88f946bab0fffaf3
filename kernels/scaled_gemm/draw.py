"""Random problems of scaled_gemm, as 8-bit checkpoints of decoder models have them."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from tuner.kernels.shared.drawn_projections import projection, tokens
from tuner.kernels.shared.draws import at_most

STEP = 16
"""Multiple that most checkpoints have for N and K, since cuBLAS needs it."""
ODD = 1 / 8
"""Share of problems of other N and K."""


def draw(random: Random) -> Mapping[str, object]:
    """Return a linear layer of a random model; most sizes are those that cuBLAS computes, too."""
    N, K = (-(-size // STEP) * STEP for size in projection(random))
    if random.random() < ODD:
        N, K = N - random.randrange(1, STEP), K - random.randrange(1, STEP)
    scales = random.choice(("tensor", "tensor", "block"))
    return {
        "M": at_most(tokens(random), 2 * N + K),
        "N": N,
        "K": K,
        "scales": scales,
        "accumulate": "fast" if scales == "tensor" and random.randrange(3) == 0 else "fp32",
        "out_dtype": random.choice(("bf16", "bf16", "bf16", "fp16")),
    }
