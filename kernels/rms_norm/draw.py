"""Random problems of rms_norm, as models have them."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from tuner.kernels.shared.rows_draw import drawn_rows


def draw(random: Random) -> Mapping[str, object]:
    """Return the values of a problem: hidden sizes and head dims of models, and free sizes, of which many are odd."""
    residual = random.random() < 0.4
    values = drawn_rows(random, matrices=4 if residual else 2)
    return {**values, "weight": random.random() < 0.85, "residual": residual}
