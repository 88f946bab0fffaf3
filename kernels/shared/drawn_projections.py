"""Random linear layers of decoder models, for products that draw problems. Plain Python."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tuner.kernels.shared.draws import log_uniform


@dataclass(frozen=True)
class ModelSizes:
    """Sizes of published decoder models and of plausible ones between them."""

    hidden: tuple[int, int] = (1024, 16384)
    head_widths: tuple[int, ...] = (64, 80, 96, 128, 128, 128, 192, 256)
    groups: tuple[int, ...] = (1, 2, 4, 4, 5, 7, 8, 8, 16)
    """Query heads that share a key-value head."""
    widths: tuple[float, ...] = (2.6875, 2.75, 3.5, 4.0, 4.0, 5.25)
    """Width of the MLP over the hidden size."""
    vocabularies: tuple[int, ...] = (32000, 32768, 49152, 50257, 65536, 100352, 128256, 129280, 151936, 201088, 262144)
    shards: tuple[int, ...] = (1, 1, 2, 4, 8)
    """Cards among which a layer is divided."""
    layers: tuple[str, ...] = ("qkv", "o", "gate_up", "gate_up", "up", "down", "down", "head")


SIZES = ModelSizes()


def projection(random: Random, most: int = 2**28, sizes: ModelSizes = SIZES) -> tuple[int, int]:
    """Return N and K of a linear layer of a random model on one of its cards, with up to `most` weights."""
    while True:
        N, K = _any_projection(random, sizes)
        if most >= N * K:
            return N, K


def _any_projection(random: Random, sizes: ModelSizes) -> tuple[int, int]:
    hidden = log_uniform(random, *sizes.hidden, multiple=random.choice((64, 128)))
    layer, cards = random.choice(sizes.layers), random.choice(sizes.shards)
    width = random.choice(sizes.head_widths)
    heads = max(cards, hidden // width // cards * cards)
    keys = max(1, heads // random.choice(sizes.groups) // cards)
    inner = round(hidden * random.choice(sizes.widths) / (64 * cards)) * 64
    return {
        "qkv": ((heads // cards + 2 * keys) * width, hidden),
        "o": (hidden, heads // cards * width),
        "gate_up": (2 * inner, hidden),
        "up": (inner, hidden),
        "down": (hidden, inner),
        "head": (-(-random.choice(sizes.vocabularies) // cards), hidden),
    }[layer]


def tokens(random: Random, most: int = 8192) -> int:
    """Return a log-uniform number of tokens; a third of them are multiples of 64 or 128."""
    multiple = random.choice((64, 128)) if random.randrange(3) == 0 else 1
    return log_uniform(random, 1, most, multiple=multiple)
