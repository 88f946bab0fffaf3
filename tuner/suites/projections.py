"""The GEMMs of a language model, read from its Hugging Face `config.json`.

A linear layer multiplies tokens (M, K) by the transpose of its weight (N, K), hence layout nt. Layers are merged as
servers merge them: q, k and v; gate and up. `tp` cards share the columns of those and of the head, and the rows of what
follows each, as Megatron-LM does (Shoeybi et al., 2019).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.errors import UsageError, reason
from tuner.kernels.spec import cdiv

LADDER = (1, 16, 64, 256, 1024, 4096)
"""Tokens at once where none are asked for: decoding for few and for many, then prefill."""
_DENSE = {"llama", "mistral", "qwen2", "qwen3"}
_SPARSE = {"mixtral", "qwen3_moe"}
_LARGEST = 1 << 20
"""Bytes of a config; real ones have a few thousand."""


@dataclass(frozen=True)
class Projection:
    """One merged linear layer on one card."""

    name: str
    N: int
    K: int
    bias: bool = False
    share: tuple[int, int] = (1, 1)
    """Of the tokens, how many it sees on average: experts get (experts a token, experts)."""

    def tokens(self, M: int) -> int:
        """Rows of its GEMM when M tokens pass through the model."""
        return max(1, cdiv(M * self.share[0], self.share[1]))


@dataclass(frozen=True)
class ModelShape:
    """What a config says."""

    dtype: str
    projections: tuple[Projection, ...]

    def gemms(self, M: int) -> Iterator[dict[str, object]]:
        """What describes the GEMMs of M tokens to gemm's signature."""
        for layer in self.projections:
            bias = {"bias": True} if layer.bias else {}
            yield {"M": layer.tokens(M), "N": layer.N, "K": layer.K, "dtype": self.dtype, "layout": "nt", **bias}


def load(file: Path, tp: int = 1) -> ModelShape:
    """The model of a `config.json`, as one of `tp` cards has it.

    Raises:
        UsageError: it cannot be read, is of an unknown kind, or cannot be shared by so many.
    """
    try:
        with file.open(encoding="utf-8") as opened:
            config = json.loads(opened.read(_LARGEST))
        config = {**config, **(config.get("text_config") or {})}  # of a model that also sees: its words'
        if config["model_type"] not in _DENSE | _SPARSE:
            known = ", ".join(sorted(_DENSE | _SPARSE))
            raise UsageError(f"{file}: GEMMs are known of model_type {known}, not of {config['model_type']!r:.40}")
        if config.get("quantization_config"):
            raise UsageError(f"{file}: its weights are quantized, and gemm's are not; take the config of the original")
        return ModelShape(
            str(config.get("dtype") or config["torch_dtype"]), tuple(_projections(_Shared(file, tp), config))
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{file} is no model's config.json: {reason(error)}") from error


@dataclass(frozen=True)
class _Shared:
    """Divides what the cards share."""

    file: Path
    cards: int

    def __call__(self, size: int, what: str) -> int:
        if size % self.cards:
            raise UsageError(f"{self.file}: {what}, {size}, cannot be shared by {self.cards} cards; give another --tp")
        return size // self.cards


def _projections(shared: _Shared, config: Mapping[str, Any]) -> Iterator[Projection]:
    kind, hidden = config["model_type"], int(config["hidden_size"])
    heads = int(config["num_attention_heads"])
    groups = int(config.get("num_key_value_heads") or heads)
    width = int(config.get("head_dim") or hidden // heads)
    queries = shared(heads, "num_attention_heads")
    # Where there are fewer key-value heads than cards, each card has a copy of one.
    keys = shared(groups, "num_key_value_heads") if groups > shared.cards else 1
    bias = bool(config.get("attention_bias", False))
    yield Projection("qkv", (queries + 2 * keys) * width, hidden, bias or kind == "qwen2")
    yield Projection("o", hidden, queries * width, bias and shared.cards == 1)  # else added once, to the cards' sum
    if kind in _SPARSE:
        yield from _experts(shared, config, hidden)
    if kind in _DENSE or config.get("mlp_only_layers") or config.get("decoder_sparse_step", 1) > 1:
        inner = shared(int(config["intermediate_size"]), "intermediate_size")
        bias = bool(config.get("mlp_bias", False))
        yield Projection("gate_up", 2 * inner, hidden, bias)
        yield Projection("down", hidden, inner, bias and shared.cards == 1)
    yield Projection("head", cdiv(int(config["vocab_size"]), shared.cards), hidden)  # the last card's is padded


def _experts(shared: _Shared, config: Mapping[str, Any], hidden: int) -> Iterator[Projection]:
    """The router, and one expert at the tokens that it gets on average."""
    count = int(config.get("num_local_experts") or config["num_experts"])
    share = (int(config["num_experts_per_tok"]), count)
    inner = shared(int(config.get("moe_intermediate_size") or config["intermediate_size"]), "an expert's width")
    yield Projection("router", count, hidden)
    yield Projection("expert_gate_up", 2 * inner, hidden, share=share)
    yield Projection("expert_down", hidden, inner, share=share)
