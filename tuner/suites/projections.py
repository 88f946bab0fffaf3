"""The GEMMs of a language model, read from its Hugging Face `config.json`.

A linear layer multiplies tokens (M, K) by the transpose of its weight (N, K): layout nt. Layers are merged as inference
servers merge them: q, k and v; gate and up. With tensor parallelism, `tp` cards share the columns of these layers and
of the head, and the rows of the layers after them, as in Megatron-LM (Shoeybi et al., 2019).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.errors import UsageError, reason
from tuner.kernels.spec import cdiv
from tuner.records.strict import MALFORMED

_DENSE = {"llama", "mistral", "qwen2", "qwen3"}
_SPARSE = {"mixtral", "qwen3_moe"}


@dataclass(frozen=True)
class ModelSettings:
    """Settings of the problems of a model."""

    tokens: tuple[int, ...] = (1, 16, 64, 256, 1024, 4096)
    """Token counts if none are given, from decoding of one sequence to prefill."""
    max_characters: int = 1 << 20
    """Characters of a config that are read; real ones have a few thousand."""


SETTINGS = ModelSettings()


@dataclass(frozen=True)
class Projection:
    """One merged linear layer on one card."""

    name: str
    N: int
    K: int
    bias: bool = False
    share: tuple[int, int] = (1, 1)
    """Average share of the tokens that pass through it, as a fraction: for an expert (experts per token, experts)."""

    def tokens(self, M: int) -> int:
        """Return the rows of its GEMM if M tokens pass through the model."""
        return max(1, cdiv(M * self.share[0], self.share[1]))


@dataclass(frozen=True)
class ModelShape:
    """The dtype and the linear layers of a model, on one card."""

    dtype: str
    projections: tuple[Projection, ...]

    def gemms(self, M: int) -> Iterator[dict[str, object]]:
        """Yield the problem of each layer for M tokens, as values for gemm's signature."""
        for layer in self.projections:
            bias = {"bias": True} if layer.bias else {}
            yield {"M": layer.tokens(M), "N": layer.N, "K": layer.K, "dtype": self.dtype, "layout": "nt", **bias}


def load(file: Path, tp: int = 1, settings: ModelSettings = SETTINGS) -> ModelShape:
    """Return the shape of the model of a `config.json`, on one of `tp` cards.

    Raises:
        UsageError: The file cannot be read, the model's type is unknown, or `tp` does not divide a size.
    """
    try:
        with file.open(encoding="utf-8") as opened:
            config = json.loads(opened.read(settings.max_characters))
        config = {**config, **(config.get("text_config") or {})}  # the language part of a multimodal model
        if config["model_type"] not in _DENSE | _SPARSE:
            known = ", ".join(sorted(_DENSE | _SPARSE))
            raise UsageError(f"{file}: a model has model_type {known}, not {config['model_type']!r:.40}")
        if config.get("quantization_config"):
            raise UsageError(f"{file}: gemm takes no quantized weights; give the config of the original model")
        return ModelShape(
            str(config.get("dtype") or config["torch_dtype"]), tuple(_projections(_Shared(file, tp), config))
        )
    except (OSError, *MALFORMED) as error:
        raise UsageError(f"{file} is not a model's config.json: {reason(error)}") from error


@dataclass(frozen=True)
class _Shared:
    """Division of sizes among cards."""

    file: Path
    cards: int

    def __call__(self, size: int, what: str) -> int:
        if size % self.cards:
            raise UsageError(f"{self.file}: --tp divides {what}, {size}, and {self.cards} does not; give another --tp")
        return size // self.cards


def _projections(shared: _Shared, config: Mapping[str, Any]) -> Iterator[Projection]:
    kind, hidden = config["model_type"], int(config["hidden_size"])
    heads = int(config["num_attention_heads"])
    groups = int(config.get("num_key_value_heads") or heads)
    width = int(config.get("head_dim") or hidden // heads)
    queries = shared(heads, "num_attention_heads")
    # With fewer key-value heads than cards, each card has a copy of one head.
    keys = shared(groups, "num_key_value_heads") if groups > shared.cards else 1
    bias = bool(config.get("attention_bias", False))
    yield Projection("qkv", (queries + 2 * keys) * width, hidden, bias or kind == "qwen2")
    yield Projection(
        "o", hidden, queries * width, bias and shared.cards == 1
    )  # with several cards it is added after their sum
    if kind in _SPARSE:
        yield from _experts(shared, config, hidden)
    if kind in _DENSE or config.get("mlp_only_layers") or config.get("decoder_sparse_step", 1) > 1:
        inner = shared(int(config["intermediate_size"]), "intermediate_size")
        bias = bool(config.get("mlp_bias", False))
        yield Projection("gate_up", 2 * inner, hidden, bias)
        yield Projection("down", hidden, inner, bias and shared.cards == 1)
    yield Projection("head", cdiv(int(config["vocab_size"]), shared.cards), hidden)  # padded on the last card


def _experts(shared: _Shared, config: Mapping[str, Any], hidden: int) -> Iterator[Projection]:
    """Yield the router, and the layers of one expert with its average share of the tokens."""
    count = int(config.get("num_local_experts") or config["num_experts"])
    share = (int(config["num_experts_per_tok"]), count)
    inner = shared(int(config.get("moe_intermediate_size") or config["intermediate_size"]), "an expert's width")
    yield Projection("router", count, hidden)
    yield Projection("expert_gate_up", 2 * inner, hidden, share=share)
    yield Projection("expert_down", hidden, inner, share=share)
