"""A decoder model with random weights, of published sizes, and its ops as torch has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

Caches = Sequence[tuple[Tensor, Tensor]]
STEPS = ("prefill", "chunk", "decode")


@dataclass(frozen=True)
class Sizes:
    """Sizes of a model and of its work; the defaults are those of Llama 3 8B, but for layers and vocabulary."""

    layers: int = 4
    width: int = 4096
    heads: int = 32
    shared_heads: int = 8
    head_size: int = 128
    hidden: int = 14336
    vocabulary: int = 32000
    prompt: int = 4096
    chunk: int = 256
    """Tokens at the beginning of the prompt that are computed alone."""
    sequences: int = 16
    cached: int = 8192
    """Cached keys of the first sequence in decoding; each sequence has one less than the one before."""


MODELS: Mapping[str, Sizes] = {
    "llama-3-8b": Sizes(),
    # https://huggingface.co/HuggingFaceTB/SmolLM3-3B/blob/main/config.json
    "smollm3-3b": Sizes(width=2048, heads=16, shared_heads=4, hidden=11008),
    # https://huggingface.co/tiiuae/Falcon3-10B-Base/blob/main/config.json
    "falcon3-10b": Sizes(width=3072, heads=12, shared_heads=4, head_size=256, hidden=23040),
    # https://huggingface.co/LGAI-EXAONE/EXAONE-4.0-32B/blob/main/config.json
    "exaone-4-32b": Sizes(width=5120, heads=40, shared_heads=8, hidden=27392),
}
"""Sizes of published models by name, with 4 layers and a vocabulary of 32,000. The last three are in no suite and in no
draw of problems, so no rule is fitted to them."""


class Ops(Protocol):
    """The ops of a layer."""

    def norm(self, x: Tensor, weight: Tensor) -> Tensor: ...
    def linear(self, x: Tensor, weight: Tensor) -> Tensor: ...
    def gated(self, x: Tensor) -> Tensor: ...
    def attend(self, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor | None) -> Tensor: ...


class ByTorch:
    """The ops as torch has them."""

    def norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return functional.rms_norm(x, (x.shape[-1],), weight, 1e-6)

    def linear(self, x: Tensor, weight: Tensor) -> Tensor:
        return functional.linear(x, weight)

    def gated(self, x: Tensor) -> Tensor:
        gate, up = x.chunk(2, -1)
        return functional.silu(gate) * up

    def attend(self, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor | None) -> Tensor:
        seen = None
        if lengths is not None:
            seen = (torch.arange(k.shape[2], device=k.device) < lengths[:, None])[:, None, None]
        return functional.scaled_dot_product_attention(
            q, k, v, attn_mask=seen, is_causal=lengths is None, enable_gqa=True
        )


class Model:
    """A decoder with random weights, its inputs and its caches."""

    def __init__(self, sizes: Sizes, device: str, dtype: torch.dtype) -> None:
        generator = torch.Generator(device).manual_seed(0)

        def drawn(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator, device=device).to(dtype)

        def weight(rows: int, columns: int) -> Tensor:
            return drawn(rows, columns) * columns**-0.5

        width, wide = sizes.width, sizes.heads * sizes.head_size
        both = wide + 2 * sizes.shared_heads * sizes.head_size
        cache = (sizes.sequences, sizes.shared_heads, sizes.cached, sizes.head_size)
        self.sizes = sizes
        self.layers = [
            {
                "norm": torch.ones(width, device=device, dtype=dtype),
                "qkv": weight(both, width),
                "out": weight(width, wide),
                "second norm": torch.ones(width, device=device, dtype=dtype),
                "up": weight(2 * sizes.hidden, width),
                "down": weight(width, sizes.hidden),
            }
            for _ in range(sizes.layers)
        ]
        self.head = weight(sizes.vocabulary, width)
        self.prompt, self.tokens = drawn(1, sizes.prompt, width), drawn(sizes.sequences, 1, width)
        self.caches = [(drawn(*cache), drawn(*cache)) for _ in self.layers]
        self.lengths = sizes.cached - torch.arange(sizes.sequences, device=device, dtype=torch.int32)

    def widened(self) -> Model:
        """Return the same model in fp32."""
        found = object.__new__(Model)
        found.sizes, found.lengths = self.sizes, self.lengths
        found.layers = [{name: weight.float() for name, weight in layer.items()} for layer in self.layers]
        found.head, found.prompt, found.tokens = self.head.float(), self.prompt.float(), self.tokens.float()
        found.caches = [(k.float(), v.float()) for k, v in self.caches]
        return found

    def logits(self, step: str, by: Ops) -> Tensor:
        """Return the logits (sequences, vocabulary) of the last token of a prompt or chunk, or of each decoded one."""
        return by.linear(self.through_layers(step, by)[:, -1], self.head)

    def through_layers(self, step: str, by: Ops) -> Tensor:
        """Return the hidden states (sequences, tokens, width) after all layers.

        Decoding writes keys and values to the caches.
        """
        if step == "decode":
            return self._run(by, self.tokens, self.caches)
        return self._run(by, self.prompt[:, : self.sizes.chunk] if step == "chunk" else self.prompt, None)

    def _run(self, by: Ops, x: Tensor, caches: Caches | None) -> Tensor:
        sizes, (B, T, _) = self.sizes, x.shape
        for nth, layer in enumerate(self.layers):
            projected = by.linear(by.norm(x, layer["norm"]), layer["qkv"])
            heads = projected.view(B, T, -1, sizes.head_size).transpose(1, 2)
            q, k, v = heads.split((sizes.heads, sizes.shared_heads, sizes.shared_heads), 1)
            if caches is not None:
                last = (self.lengths.long() - 1)[:, None, None, None].expand(k.shape)
                k, v = (cache.scatter_(2, last, new) for cache, new in zip(caches[nth], (k, v), strict=True))
            found = by.attend(q, k, v, None if caches is None else self.lengths)
            x = x + by.linear(found.transpose(1, 2).reshape(B, T, -1), layer["out"])
            x = x + by.linear(by.gated(by.linear(by.norm(x, layer["second norm"]), layer["up"])), layer["down"])
        return x
