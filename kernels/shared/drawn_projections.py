"""Random linear layers of decoder models, for products that draw problems. Plain Python."""

from __future__ import annotations

from random import Random

from tuner.kernels.shared.decoder_models import any_model, any_projection
from tuner.kernels.shared.draws import log_uniform


def projection(random: Random, most: int = 2**28) -> tuple[int, int]:
    """Return N and K of a linear layer of a random model on one of its cards, with up to `most` weights."""
    while True:
        N, K = any_projection(random, any_model(random))
        if most >= N * K:
            return N, K


def tokens(random: Random, most: int = 8192) -> int:
    """Return a log-uniform number of tokens; a third of them are multiples of 64 or 128."""
    multiple = random.choice((64, 128)) if random.randrange(3) == 0 else 1
    return log_uniform(random, 1, most, multiple=multiple)
