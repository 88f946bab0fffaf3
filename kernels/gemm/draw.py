"""Random problems of gemm, as decoder models have them."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from tuner.kernels.shared.drawn_projections import projection, tokens
from tuner.kernels.shared.draws import at_most, log_uniform, odd_size
from tuner.kernels.spec import itemsize

LAYOUTS = {"nt": 17, "nn": 4, "tn": 2, "tt": 1}
"""Layouts with their weights; linear layers have nt."""
DTYPES = {"bf16": 15, "fp16": 4, "fp32": 1}
"""Dtypes with their weights."""
ODD = 1 / 24
"""Share of the problems with odd N and K; of the others, most have a number of tokens that no tile divides."""
EXTREME = 1 / 12
"""Share of wide, of tall and of deep problems together."""


def draw(random: Random) -> Mapping[str, object]:
    """Return a linear layer of a random model; a few odd, wide, tall or deep products."""
    dtype = random.choices([*DTYPES], [*DTYPES.values()])[0]
    (N, K), M = projection(random, 2**29 // itemsize(dtype)), tokens(random)
    chance = random.random()
    if chance < EXTREME:
        small, large = log_uniform(random, 16, 256), log_uniform(random, 16384, 131072, multiple=64)
        M, N, K = random.choice(((small, large, 4 * small), (large, small, 4 * small), (small, small, large)))
    elif chance < EXTREME + ODD:
        N, K = odd_size(random, 33, N), odd_size(random, 33, K)
    return {
        "M": at_most(M, (N + K) * itemsize(dtype), 2**29),
        "N": N,
        "K": K,
        "dtype": dtype,
        "layout": random.choices([*LAYOUTS], [*LAYOUTS.values()])[0],
        "bias": random.random() < 1 / 6,
        "activation": random.choice(("silu", "gelu")) if random.random() < 1 / 8 else "none",
        **({"precision": random.choice(("ieee", "tf32"))} if dtype == "fp32" else {}),
    }
