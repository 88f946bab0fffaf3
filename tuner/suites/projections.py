"""The matrix products of a language model, read from its Hugging Face `config.json`.

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
from tuner.kernels.dtypes import dtype_name
from tuner.kernels.spec import cdiv
from tuner.records.strict import MALFORMED
from tuner.suites.quantized import scales_of

OPS = ("gemm", "scaled_gemm")
"""Ops that compute the layers of a model."""
_SPARSE = ("mixtral", "qwen3_moe")
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "llama": {"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32},
    "mistral": {
        "vocab_size": 32000,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
    },
    "mixtral": {
        "vocab_size": 32000,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "num_experts_per_tok": 2,
        "num_local_experts": 8,
    },
    "qwen2": {
        "vocab_size": 151936,
        "hidden_size": 4096,
        "intermediate_size": 22016,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
    },
    "qwen3": {
        "vocab_size": 151936,
        "hidden_size": 4096,
        "intermediate_size": 22016,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "head_dim": 128,
    },
    "qwen3_moe": {
        "vocab_size": 151936,
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "moe_intermediate_size": 768,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "num_experts_per_tok": 8,
        "num_experts": 128,
    },
}
"""Values that a config leaves out if they equal the library's, by model type.

Source: `models/*/configuration_*.py` of huggingface/transformers at commit 008e574, mistral's at 001f85b. A value that
is missing here follows from others.
"""
_TEXT = ("text_config", "llm_config", "language_config")
"""Names of the language part in the config of a multimodal model."""


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
    is_quantized: bool = True
    """True if 8-bit checkpoints have it in 8 bits; they have the head and routers in 16."""
    share: tuple[int, int] = (1, 1)
    """Average share of the tokens that pass through it, as a fraction: for an expert (experts per token, experts)."""

    def tokens(self, M: int) -> int:
        """Return the rows of its GEMM if M tokens pass through the model."""
        return max(1, cdiv(M * self.share[0], self.share[1]))


@dataclass(frozen=True)
class ModelShape:
    """The dtype and the linear layers of a model, on one card."""

    dtype: str | None
    """Dtype of weights and activations that are not quantized; None if the config names none."""
    projections: tuple[Projection, ...]
    scales: str | None = None
    """Attribute `scales` of the products of an 8-bit checkpoint; None of others."""

    def layers(self, op: str) -> tuple[Projection, ...]:
        """Return the layers that an op computes; of a checkpoint in 16 bits, `scaled_gemm` could compute most."""
        if op == "gemm" and self.scales is None:
            return self.projections
        return tuple(layer for layer in self.projections if layer.is_quantized == (op == "scaled_gemm"))

    def problems(self, op: str, M: int) -> Iterator[dict[str, object]]:
        """Yield the problem of each layer of an op for M tokens, as values for its signature."""
        for layer in self.layers(op):
            sizes = {"M": layer.tokens(M), "N": layer.N, "K": layer.K}
            dtype = {} if self.dtype is None else {"dtype" if op == "gemm" else "out_dtype": self.dtype}
            if op == "gemm":
                yield {**sizes, **dtype, "layout": "nt", **({"bias": True} if layer.bias else {})}
            else:  # which has no bias: it is added afterwards
                yield {**sizes, **dtype, **({} if self.scales is None else {"scales": self.scales})}


def load(file: Path, tp: int = 1, settings: ModelSettings = SETTINGS) -> ModelShape:
    """Return the shape of the model of a `config.json`, on one of `tp` cards.

    Raises:
        UsageError: The file cannot be read, the model's type is unknown, no op multiplies its quantized weights, or
            `tp` does not divide a size.
    """
    try:
        with file.open(encoding="utf-8") as opened:
            whole = json.loads(opened.read(settings.max_characters))
        config = next((whole[name] for name in _TEXT if whole.get(name)), whole)
        kind = config["model_type"]
        if kind not in _DEFAULTS:
            raise UsageError(f"{file}: a model has model_type {', '.join(sorted(_DEFAULTS))}, not {kind!r:.40}")
        scales = scales_of(file, config) or scales_of(file, whole)
        layers = tuple(_projections(_Shared(file, tp), {**_DEFAULTS[kind], **config}))
        return ModelShape(_dtype(config) or _dtype(whole), layers, scales)
    except (OSError, *MALFORMED) as error:
        raise UsageError(f"{file} is not a model's config.json: {reason(error)}") from error


def _dtype(config: Mapping[str, Any]) -> str | None:
    """Return the dtype of a config, under its new or its old name; None if it names none."""
    stated = config.get("dtype") or config.get("torch_dtype")
    return None if stated in (None, "auto") else dtype_name(stated)


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
    if kind not in _SPARSE or config.get("mlp_only_layers") or (config.get("decoder_sparse_step") or 1) > 1:
        inner = shared(int(config["intermediate_size"]), "intermediate_size")
        bias = bool(config.get("mlp_bias", False))
        yield Projection("gate_up", 2 * inner, hidden, bias)
        yield Projection("down", hidden, inner, bias and shared.cards == 1)
    rows = cdiv(int(config["vocab_size"]), shared.cards)  # padded on the last card
    yield Projection("head", rows, hidden, is_quantized=False)


def _experts(shared: _Shared, config: Mapping[str, Any], hidden: int) -> Iterator[Projection]:
    """Yield the router, and the layers of one expert with its average share of the tokens."""
    count = int(config.get("num_local_experts") or config["num_experts"])
    share = (int(config["num_experts_per_tok"]), count)
    inner = shared(int(config.get("moe_intermediate_size") or config["intermediate_size"]), "an expert's width")
    yield Projection("router", count, hidden, is_quantized=False)
    yield Projection("expert_gate_up", 2 * inner, hidden, share=share)
    yield Projection("expert_down", hidden, inner, share=share)
