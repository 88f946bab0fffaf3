"""Problems of silu_mul as models have them."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from tuner.kernels.shared.elementwise_draw import MLP, MOST_BYTES, dtype, tokens_and_width
from tuner.kernels.spec import itemsize


def draw(dice: Random) -> Mapping[str, object]:
    """Return the values of a problem."""
    kind = dtype(dice)
    M, N = tokens_and_width(dice, MLP, MOST_BYTES // (3 * itemsize(kind)))
    return {"M": M, "N": N, "dtype": kind, "packed": bool(dice.randrange(2))}
