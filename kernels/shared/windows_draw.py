"""Random problems of pooling, as models have them. Plain Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from tuner.kernels.shared import draws
from tuner.kernels.spec import itemsize

CHANNELS = (16, 24, 32, 48, 64, 96, 112, 128, 160, 192, 256, 288, 320, 384, 480, 512, 640, 728, 768, 832, 1024, 1280,
            1536, 2048)  # fmt: skip
"""Channels of published models."""
SIDES = (7, 8, 13, 14, 16, 20, 24, 26, 28, 32, 38, 40, 52, 56, 64, 80, 96, 104, 112, 128, 160, 192, 208, 224, 256, 320,
         384, 416, 448, 512, 640)  # fmt: skip
"""Sides of images and of what layers make of them."""
BATCHES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
MOST_BYTES = 2**30
"""Bytes of x and out, at most."""
LEAST_BYTES = 2**13
"""Bytes of x, at least."""

Values = dict[str, object]


def square(R: int, stride: int, padding: int = 0) -> Values:
    """Return windows with equal sides."""
    return {"R": R, "S": R, "stride_h": stride, "stride_w": stride, "padding_h": padding, "padding_w": padding}


def stem(random: Random, H: int, W: int) -> Values:
    """Return windows of 3 x 3 that halve an image, as after the first convolution of residual networks."""
    return {**square(3, 2, random.choice((0, 1))), "ceil": random.random() < 0.3}


def halved(random: Random, H: int, W: int) -> Values:
    """Return windows that do not overlap."""
    side = random.choice((2, 2, 2, 2, 3, 4))
    return {**square(side, side), "ceil": random.random() < 0.2}


def same_size(random: Random, H: int, W: int) -> Values:
    """Return windows that leave the size as it is: of 3 x 3 in inception blocks, larger ones in pyramids."""
    side = random.choice((3, 3, 3, 5, 5, 9, 13))
    return square(side, 1, side // 2)


def whole(random: Random, H: int, W: int) -> Values:
    """Return one window for each image: the global pooling before a classifier."""
    return {"R": H, "S": W, "stride_h": H, "stride_w": H}


def free(random: Random, H: int, W: int) -> Values:
    """Return any windows."""
    values: Values = {}
    for size, window, letter in ((H, "R", "h"), (W, "S", "w")):
        side = draws.log_uniform(random, 1, min(size, 24))
        values[window] = side
        values[f"stride_{letter}"] = draws.log_uniform(random, 1, 2 * side)
        values[f"padding_{letter}"] = random.randint(0, side // 2)
    return {**values, "ceil": random.random() < 0.5}


def drawn(random: Random, kinds: Mapping[Callable[[Random, int, int], Values], int]) -> Values:
    """Return the values of a problem with one of the kinds of windows, which have weights.

    Of three problems one has odd sizes. Images of the global pooling are mostly small.
    """
    (kind,) = random.choices(list(kinds), list(kinds.values()))
    dtype = draws.dtype(random)
    most = 64 if kind is whole and random.random() < 0.8 else 1024
    if random.random() < 1 / 3:
        C, H = draws.odd_size(random, 1, 2048), draws.odd_size(random, 5, most)
        W = H if random.random() < 0.5 else draws.odd_size(random, 5, most)
    else:
        C, H = random.choice(CHANNELS), random.choice([side for side in SIDES if side <= most])
        W = H if random.random() < 0.8 else random.choice([side for side in SIDES if side <= most])
    values = kind(random, H, W)
    # Windows of a stride of 1 with padding have more outputs than elements, by less than as many.
    an_image = C * H * W * itemsize(dtype) * 2
    while an_image > MOST_BYTES:
        C, an_image = max(1, C // 2), C // 2 * H * W * itemsize(dtype) * 2
    B = random.choice(BATCHES) if random.random() < 0.7 else draws.log_uniform(random, 1, 512)
    B = max(min(B, MOST_BYTES // an_image), -(-2 * LEAST_BYTES // an_image))
    layout = "nhwc" if random.random() < 0.4 else "nchw"
    return {"B": B, "C": C, "H": H, "W": W, "dtype": dtype, "layout": layout, **values}
