"""Sizes of published decoder models, and of plausible ones between them. Plain Python."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from tuner.kernels.shared.draws import log_uniform


class Model(NamedTuple):
    """Sizes of a decoder model's layers."""

    family: str
    """Name under which models of one origin are published; `plausible` for one that is drawn."""
    hidden: int
    heads: int
    key_heads: int
    """Number of key-value heads."""
    head_width: int
    inner: int
    """Width of the MLP."""
    vocabulary: int
    gated: bool = True
    """True if the MLP has a gate, which is merged with its first projection."""


PUBLISHED = (
    Model("llama", 2048, 32, 8, 64, 8192, 128256),
    Model("llama", 3072, 24, 8, 128, 8192, 128256),
    Model("llama", 4096, 32, 8, 128, 14336, 128256),
    Model("llama", 4096, 32, 32, 128, 11008, 32000),
    Model("llama", 5120, 40, 40, 128, 13824, 32000),
    Model("llama", 8192, 64, 8, 128, 28672, 128256),
    Model("llama", 16384, 128, 8, 128, 53248, 128256),
    Model("tinyllama", 2048, 32, 4, 64, 5632, 32000),
    Model("mistral", 5120, 32, 8, 128, 14336, 131072),
    Model("mistral", 5120, 32, 8, 128, 32768, 131072),
    Model("mistral", 12288, 96, 8, 128, 28672, 32768),
    Model("qwen", 1024, 16, 8, 128, 3072, 151936),
    Model("qwen", 1536, 12, 2, 128, 8960, 151936),
    Model("qwen", 2048, 16, 2, 128, 11008, 151936),
    Model("qwen", 2560, 32, 8, 128, 9728, 151936),
    Model("qwen", 3584, 28, 4, 128, 18944, 152064),
    Model("qwen", 5120, 40, 8, 128, 17408, 151936),
    Model("qwen", 5120, 64, 8, 128, 25600, 151936),
    Model("qwen", 8192, 64, 8, 128, 29568, 152064),
    Model("gemma", 1152, 4, 1, 256, 6912, 262144),
    Model("gemma", 2304, 8, 4, 256, 9216, 256000),
    Model("gemma", 3840, 16, 8, 256, 15360, 262208),
    Model("gemma", 4608, 32, 16, 128, 36864, 256000),
    Model("gemma", 5376, 32, 16, 128, 21504, 262208),
    Model("phi", 3072, 32, 32, 96, 8192, 32064),
    Model("phi", 5120, 40, 10, 128, 17920, 100352),
    Model("smollm", 2048, 32, 32, 64, 8192, 49152),
    Model("olmo", 4096, 32, 32, 128, 11008, 100352),
    Model("granite", 4096, 32, 8, 128, 12800, 49155),
    Model("internlm", 6144, 48, 8, 128, 16384, 92544),
    Model("yi", 7168, 56, 8, 128, 20480, 64000),
    Model("deepseek", 8192, 64, 8, 128, 22016, 102400),
    Model("command", 8192, 64, 64, 128, 22528, 256000),
    Model("command", 12288, 96, 8, 128, 33792, 256000),
    Model("falcon", 4544, 71, 1, 64, 18176, 65024, gated=False),
    Model("falcon", 8192, 128, 8, 64, 32768, 65024, gated=False),
    Model("neox", 2048, 16, 16, 128, 8192, 50304, gated=False),
    Model("neox", 6144, 64, 64, 96, 24576, 50432, gated=False),
    Model("opt", 4096, 32, 32, 128, 16384, 50272, gated=False),
    Model("opt", 9216, 72, 72, 128, 36864, 50272, gated=False),
    Model("starcoder", 3072, 24, 2, 128, 12288, 49152, gated=False),
    Model("starcoder", 4608, 36, 4, 128, 18432, 49152, gated=False),
    Model("mpt", 7168, 64, 64, 112, 28672, 50432, gated=False),
    Model("bloom", 14336, 112, 112, 128, 57344, 250880, gated=False),
)
"""Dense models, from their public configuration files."""


@dataclass(frozen=True)
class ModelSizes:
    """Sizes of plausible models, and the cards among which a layer is divided."""

    published: float = 0.5
    """Share of published models."""
    hidden: tuple[int, int] = (1024, 16384)
    head_widths: tuple[int, ...] = (64, 80, 96, 128, 128, 128, 192, 256)
    groups: tuple[int, ...] = (1, 2, 4, 4, 5, 7, 8, 8, 16)
    """Query heads that share a key-value head."""
    gated_widths: tuple[float, ...] = (2.6875, 2.75, 3.5, 4.0, 5.25)
    """Width of a gated MLP over the hidden size."""
    plain_width: float = 4.0
    """Width of an MLP without a gate over the hidden size."""
    plain: float = 0.25
    """Share of models without a gate."""
    vocabularies: tuple[int, ...] = (32000, 32768, 49152, 50257, 65536, 100352, 128256, 129280, 151936, 201088, 262144)
    shards: tuple[int, ...] = (1, 1, 2, 4, 8)
    """Cards among which a layer is divided."""
    layers: tuple[str, ...] = ("qkv", "qkv", "o", "first", "first", "first", "down", "down", "head")
    """Projections with their weights: `first` is the gate with the up projection, or the up projection alone."""


SIZES = ModelSizes()


def any_model(random: Random, sizes: ModelSizes = SIZES) -> Model:
    """Return a published model or a plausible one."""
    if random.random() < sizes.published:
        return random.choice(PUBLISHED)
    hidden = log_uniform(random, *sizes.hidden, multiple=random.choice((64, 128)))
    width, group = random.choice(sizes.head_widths), random.choice(sizes.groups)
    key_heads = max(1, hidden // width // group)
    gated = random.random() >= sizes.plain
    inner = 64 * round(hidden * (random.choice(sizes.gated_widths) if gated else sizes.plain_width) / 64)
    vocabulary = random.choice(sizes.vocabularies)
    return Model("plausible", hidden, key_heads * group, key_heads, width, inner, vocabulary, gated)


def any_projection(random: Random, model: Model, sizes: ModelSizes = SIZES) -> tuple[int, int]:
    """Return N and K of one of a model's linear layers on one of the cards among which its heads can be divided."""
    layer = random.choice(sizes.layers)
    cards = random.choice([shards for shards in sizes.shards if model.heads % shards == 0])
    heads, key_heads = model.heads // cards, max(1, model.key_heads // cards)
    inner = -(-model.inner // (16 * cards)) * 16
    return {
        "qkv": ((heads + 2 * key_heads) * model.head_width, model.hidden),
        "o": (model.hidden, heads * model.head_width),
        "first": (inner * (2 if model.gated else 1), model.hidden),
        "down": (model.hidden, inner),
        "head": (-(-model.vocabulary // cards), model.hidden),
    }[layer]
