"""Random problems of max_pool2d, as models have them."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from tuner.kernels.shared.windows_draw import drawn, free, halved, same_size, stem, whole


def draw(random: Random) -> Mapping[str, object]:
    """Return the values of a problem: pooling of image classifiers and detectors, and any windows."""
    values = drawn(random, {stem: 5, halved: 5, same_size: 4, whole: 1, free: 5})
    high, wide = (2 * int(str(values[window])) - 1 for window in "RS")
    if random.random() < 0.1 and high <= int(str(values["H"])) and wide <= int(str(values["W"])):
        values |= {"dilation_h": 2, "dilation_w": 2}
    return values
