"""Random problems of layer_norm, as models have them."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from tuner.kernels.shared.rows_draw import drawn_rows


def draw(random: Random) -> Mapping[str, object]:
    """Return the values of a problem: hidden sizes of models, and free sizes, of which many are odd."""
    weight = random.random() < 0.85
    bias = weight and random.random() < 0.8
    return {**drawn_rows(random, matrices=2), "weight": weight, "bias": bias, "stats": random.random() < 0.3}
