"""Random problems of avg_pool2d, as models have them."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from tuner.kernels.shared.windows_draw import drawn, free, halved, same_size, stem, whole


def draw(random: Random) -> Mapping[str, object]:
    """Return the values of a problem: global pooling, transitions between blocks, inception, and any windows."""
    values = drawn(random, {whole: 6, halved: 5, same_size: 3, stem: 1, free: 5})
    return {**values, "count_include_pad": random.random() < 0.6}
