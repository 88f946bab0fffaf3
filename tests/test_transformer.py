"""The small model of the benchmark gives torch's logits, without a card: launches are replaced by references."""

from __future__ import annotations

import torch
from cpu_launches import on_cpu
from transformer import ByTuner, Model, Sizes, differences


def test_a_small_model_by_our_ops_is_torchs() -> None:
    sizes = Sizes(2, 64, 4, 2, 16, 96, 100, prompt=19, sequences=2, cached=40)
    with on_cpu(), torch.no_grad():
        off = differences(Model(sizes, "cpu", torch.float16), ByTuner())
    assert max(off.values()) < 0.02
