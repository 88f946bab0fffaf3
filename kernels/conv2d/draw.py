"""Random problems of conv2d, as models have them."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from tuner.kernels.shared import draws
from tuner.kernels.shared.windows_draw import BATCHES, CHANNELS, SIDES
from tuner.kernels.spec import itemsize

KINDS: Mapping[str, int] = {"same": 8, "point": 6, "halved": 3, "point_halved": 1, "stem": 1, "patches": 1, "free": 2}
"""Kinds of layers with their weights."""
DTYPES: Mapping[str, int] = {"fp16": 8, "bf16": 8, "fp32": 1}
"""Dtypes with their weights."""
MOST_BYTES = 2**29
"""Most bytes of x and out."""
MOST_FLOPS = 2**40
"""Most operations of a layer, a millisecond or two."""


def windows(random: Random, kind: str) -> dict[str, object]:
    """Return the window of a kind of layer."""

    def square(side: int, stride: int, padding: int, dilation: int = 1) -> dict[str, object]:
        numbers = {"stride": stride, "padding": padding, "dilation": dilation}
        return {"R": side, "S": side, **{f"{name}_{x}": size for name, size in numbers.items() for x in "hw"}}

    if kind == "point":
        return square(1, 1, 0)
    if kind == "point_halved":
        return square(1, 2, 0)
    if kind == "halved":
        return square(3, 2, 1)
    if kind == "stem":
        return square(*random.choice(((7, 2, 3), (3, 2, 1), (3, 1, 1))))
    if kind == "patches":
        side = random.choice((2, 4, 14, 16))
        return square(side, side, 0)
    if kind == "free":
        found: dict[str, object] = {"R": random.choice((1, 2, 3, 5, 7)), "S": random.choice((1, 2, 3, 5, 7))}
        for letter in "hw":
            found |= {f"stride_{letter}": random.choice((1, 1, 2, 3)), f"padding_{letter}": random.randint(0, 3)}
        return found
    dilation = 2 if random.random() < 0.1 else 1
    return square(3, 1, dilation, dilation)


def draw(random: Random) -> Mapping[str, object]:
    """Return a layer of image classifiers, detectors or diffusion models; of eight one has odd sizes."""
    (kind,) = random.choices([*KINDS], [*KINDS.values()])
    (dtype,) = random.choices([*DTYPES], [*DTYPES.values()])
    wide = [channels for channels in CHANNELS if channels >= 32]
    C, filters = random.choice(wide), random.choice(wide)
    H = random.choice([side for side in SIDES if side <= 128])
    if kind in ("stem", "patches"):
        C, H = random.choice((3, 3, 4)), random.choice((224, 256, 384, 512))
    elif kind in ("same", "halved") and random.random() < 0.7:
        filters = C
    W = H if random.random() < 0.8 else random.choice([side for side in SIDES if 7 <= side <= 128])
    if random.random() < 1 / 8:
        C, filters = draws.odd_size(random, 3, C), draws.odd_size(random, 3, filters)
        H = W = draws.odd_size(random, 7, H)
    window = windows(random, kind)
    R, S = int(str(window["R"])), int(str(window["S"]))
    H, W = max(H, R), max(W, S)  # patches have up to 16 pixels on a side, and images may have fewer
    an_image = H * W * (C + filters) * itemsize(dtype)
    each = 2 * H * W * C * filters * R * S // (int(str(window["stride_h"])) * int(str(window["stride_w"])))
    B = max(1, min(random.choice(BATCHES), MOST_BYTES // an_image, MOST_FLOPS // each))
    return {
        "B": B,
        "C": C,
        "H": H,
        "W": W,
        "O": filters,
        "dtype": dtype,
        **window,
        "bias": random.random() < 0.4,
        "activation": random.choice(("relu", "silu", "gelu")) if random.random() < 0.3 else "none",
        **({"precision": random.choice(("ieee", "tf32"))} if dtype == "fp32" else {}),
    }
