"""A call after others does what it does alone: random views of one memory, with launches that are prepared and without.

Views differ in strides, place and sign, overlap each other, and are the same memory; optional tensors are left out.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest
import torch
from cpu_launches import on_cpu
from torch import Tensor

from tuner.errors import UsageError
from tuner.kernels import calling
from tuner.launching import calls

CALLS = 1000
SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "add": {"x": (4, 8), "y": (4, 8), "out": (4, 8)},
    "gemm": {"a": (4, 8), "b": (8, 8), "out": (4, 8), "bias": (8,)},
    "layer_norm": {"x": (4, 8), "weight": (8,), "bias": (8,), "out": (4, 8)},
    "rms_norm": {"x": (4, 8), "weight": (8,), "residual": (4, 8), "out": (4, 8), "residual_out": (4, 8)},
    "silu_mul": {"gate": (4, 8), "up": (4, 8), "out": (4, 8)},
    "softmax": {"x": (4, 8), "out": (4, 8)},
    "transpose": {"x": (8, 8), "out": (8, 8)},
}


@pytest.fixture(autouse=True)
def on_host() -> Iterator[None]:
    with on_cpu():
        yield


def drawn(dice: random.Random, memory: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return a view of a memory, contiguous or with gaps between its rows, in its columns or transposed."""
    N = shape[-1]
    strides = dice.choice([(N, 1), (N, 1), (N + 4, 1), (2 * N, 2), (1, shape[0])])[-len(shape) :]
    view = memory.as_strided(shape, strides, dice.choice([0, 0, 4, 32, 64, 96, 128, 129, 256, 320, 384]))
    return torch._neg_view(view) if dice.random() < 0.1 else view


@pytest.mark.parametrize("op", SHAPES)
def test_a_call_after_others_does_what_it_does_alone(op: str) -> None:
    dice, call, seen = random.Random(op), calls.load(op), Counter[str]()
    content = torch.randn(640, generator=torch.Generator().manual_seed(0))
    memory = torch.empty_like(content)

    def outcome(tensors: dict[str, Tensor]) -> tuple[str, Tensor]:
        memory.copy_(content)
        try:
            calling.run(call, tensors)
        except UsageError as error:
            return str(error), memory.clone()
        return "right", memory.clone()

    for _ in range(CALLS):
        tensors: dict[str, Tensor] = {}
        for taken in call.taken:
            if taken.name in SHAPES[op] and not (taken.is_optional and dice.random() < 0.4):
                same = [x for name, x in tensors.items() if SHAPES[op][name] == SHAPES[op][taken.name]]
                again = same and dice.random() < 0.3
                tensors[taken.name] = dice.choice(same) if again else drawn(dice, memory, SHAPES[op][taken.name])
        if not tensors.keys() >= (together := {"residual", "residual_out"}):
            tensors = {name: x for name, x in tensors.items() if name not in together}
        text, after = outcome(tensors)
        prepared = dict(calling.prepared)
        calling.prepared.clear()
        alone, expected = outcome(tensors)
        calling.prepared.clear()
        calling.prepared.update(prepared)
        assert (text, after.tolist()) == (alone, expected.tolist())
        seen[text] += 1
    assert 0 < len(calling.prepared) < seen["right"]
    assert len(seen) > 1
