"""A small model with random weights: tuner.ops, torch, and torch.compile, in prefill and decoding.

Each layer is rms_norm, gemm, attention, gemm, rms_norm, gemm, silu_mul, gemm. A prefill is one long sequence; decoding
adds one token to each of several sequences, over keys and values that are there, in a CUDA graph. Shown are the time of
each, the largest difference of its logits from torch's in fp32, and the share of each op.

    python benchmarks/transformer.py --layers 4 --out transformer.json
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from tuner import ops
from tuner.records import median

Caches = Sequence[tuple[Tensor, Tensor]]
ROUNDS = 20


@dataclass(frozen=True)
class Sizes:
    """Sizes of the model and of its work; the defaults are those of Llama 3 8B, with fewer layers and words."""

    layers: int = 4
    width: int = 4096
    heads: int = 32
    shared_heads: int = 8
    head_size: int = 128
    hidden: int = 14336
    words: int = 32000
    prompt: int = 4096
    sequences: int = 16
    cached: int = 8192
    """Keys of a sequence in decoding; the last sequences have a few less."""


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


class ByTuner:
    """The ops of `tuner.ops`, which are timed one by one if there is a list for the times."""

    def __init__(self, marks: list[tuple[str, Any]] | None = None) -> None:
        self._marks = marks

    def norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return self._marked("rms_norm", ops.rms_norm(x, weight))

    def linear(self, x: Tensor, weight: Tensor) -> Tensor:
        product = ops.gemm(x.reshape(-1, x.shape[-1]), weight.t())
        return self._marked("gemm", product.view(*x.shape[:-1], -1))

    def gated(self, x: Tensor) -> Tensor:
        return self._marked("silu_mul", ops.silu_mul(x))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor | None) -> Tensor:
        return self._marked("attention", ops.attention(q, k, v, causal=lengths is None, lengths=lengths))

    def _marked(self, op: str, found: Tensor) -> Tensor:
        if self._marks is not None:
            self._marks.append((op, event()))
        return found


def event() -> Any:
    """Return an event that is recorded now."""
    recorded = torch.cuda.Event(enable_timing=True)
    recorded.record()
    return recorded


class Model:
    """Random weights, and what is computed with them."""

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
        self.head = weight(sizes.words, width)
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

    def prefill(self, by: Ops) -> Tensor:
        """Return the logits of the prompt's last token."""
        return self._run(by, self.prompt, None)

    def decode(self, by: Ops) -> Tensor:
        """Return the logits of a token of each sequence, whose key and value are written to the caches."""
        return self._run(by, self.tokens, self.caches)

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
        return by.linear(x[:, -1], self.head)


def milliseconds(run: Callable[[], object]) -> float:
    """Return the median time of a function on the card."""
    found = []
    for _ in range(ROUNDS + 3):
        first = event()
        run()
        last = event()
        torch.cuda.synchronize()
        found.append(first.elapsed_time(last))
    return median(found[3:])


def captured(run: Callable[[], object]) -> Callable[[], object]:
    """Return the replay of a function's graph."""
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return lambda: graph.replay()


def shares(run: Callable[[Ops], object]) -> dict[str, float]:
    """Return the ms of each op of `tuner.ops`, as marked one after the other; other operations count to the next."""
    run(ByTuner())
    torch.cuda.synchronize()
    torch.cuda._sleep(100_000_000)  # the launches are queued meanwhile
    marks: list[tuple[str, Any]] = [("", event())]
    run(ByTuner(marks))
    torch.cuda.synchronize()
    total: dict[str, float] = defaultdict(float)
    for (_, before), (op, after) in pairwise(marks):
        total[op] += before.elapsed_time(after)
    return dict(total)


def differences(model: Model, by: Ops) -> dict[str, float]:
    """Return the largest difference of logits from torch's in fp32, relative to the largest logit."""
    wide, found = model.widened(), {}
    for name in ("prefill", "decode"):
        exact = getattr(wide, name)(ByTorch())
        found[name] = float((getattr(model, name)(by).float() - exact).abs().max() / exact.abs().max())
    return found


def compared(model: Model) -> list[dict[str, Any]]:
    """Return a row for each way to compute the model."""
    ours, eager = ByTuner(), ByTorch()
    compiled = torch.compile(lambda name: getattr(model, name)(eager), dynamic=False)
    ways: dict[str, Callable[[str], Any]] = {
        "tuner.ops": lambda name: getattr(model, name)(ours),
        "torch": lambda name: getattr(model, name)(eager),
        "torch.compile": compiled,
    }
    rows: list[dict[str, Any]] = []
    for way, run in ways.items():
        row: dict[str, Any] = {"by": way, "prefill_ms": milliseconds(partial(run, "prefill"))}
        row["decode_ms"] = milliseconds(captured(partial(run, "decode")))
        rows.append(row)
    rows[0] |= {
        "off_by": differences(model, ours),
        "share_ms": {n: shares(getattr(model, n)) for n in ("prefill", "decode")},
    }
    rows[1]["off_by"] = differences(model, eager)
    return rows


def main() -> None:
    """Measure, print a row for each way, and write them to the output file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--out", type=Path, help="JSON file for the rows")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        parser.exit(3, "transformer: there is no GPU 0: the driver shows none\n")
    with torch.no_grad():
        rows = compared(Model(Sizes(layers=arguments.layers), "cuda", torch.bfloat16))
    for row in rows:
        print(json.dumps(row))
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
