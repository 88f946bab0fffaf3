"""Problems of gelu as models have them."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from tuner.kernels.shared.elementwise_draw import row_problem


def draw(random: Random) -> Mapping[str, object]:
    """Return the values of a problem."""
    return {**row_problem(random, inputs=1), "approximate": random.choice(("none", "tanh"))}
