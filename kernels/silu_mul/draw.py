"""Problems of silu_mul as models have them."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from tuner.kernels.shared.draws import dtype
from tuner.kernels.shared.elementwise_draw import MLP, tokens_and_width
from tuner.kernels.spec import itemsize


def draw(random: Random) -> Mapping[str, object]:
    """Return the values of a problem."""
    kind = dtype(random)
    M, N = tokens_and_width(random, MLP, 3 * itemsize(kind))
    return {"M": M, "N": N, "dtype": kind, "packed": random.choice((False, True))}
