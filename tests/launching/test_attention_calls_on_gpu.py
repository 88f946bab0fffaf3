"""attention on a real card: as torch's, in graphs and under torch.compile, bits that repeat, torch's replacement."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tuner import ops
from tuner.errors import UsageError

pytestmark = pytest.mark.gpu


def drawn(*shape: int, seed: int = 1) -> Tensor:
    generator = torch.Generator("cuda").manual_seed(seed)
    return torch.randn(shape, generator=generator, device="cuda", dtype=torch.bfloat16)


def close(found: Tensor, expected: Tensor) -> bool:
    return found.shape == expected.shape and bool((found.double() - expected.double()).abs().max() < 0.03)


def by_torch(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False) -> Tensor:
    return functional.scaled_dot_product_attention(
        q.double(), k.double(), v.double(), is_causal=causal, enable_gqa=q.shape[1] != k.shape[1]
    )


@pytest.mark.parametrize("size", [1, 127, 129, 1000])
@pytest.mark.parametrize("D", [64, 96, 128, 256])
def test_it_is_torchs_at_odd_lengths(size: int, D: int) -> None:
    q, k, v = (drawn(2, heads, size, D, seed=n) for n, heads in enumerate((8, 2, 2)))
    for causal in (False, True):
        assert close(ops.attention(q, k, v, causal=causal), by_torch(q, k, v, causal=causal))
    by_rows = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
    assert close(ops.attention(*by_rows, causal=True), by_torch(q, k, v, causal=True))


def test_a_layout_that_descriptors_cannot_describe_is_right() -> None:
    q, k, v = (drawn(1, 4, 300, 132, seed=n)[..., 3:131] for n in range(3))
    assert close(ops.attention(q, k, v, causal=True), by_torch(q, k, v, causal=True))


def test_bits_repeat() -> None:
    for rows, keys in ((2048, 2048), (3, 30000)):
        q, k, v = (drawn(2, 8, size, 128, seed=n) for n, size in enumerate((rows, keys, keys)))
        first = ops.attention(q, k, v, causal=True)
        for _ in range(50):
            assert torch.equal(ops.attention(q, k, v, causal=True), first)


def test_it_is_captured_and_compiled() -> None:
    q, k, v = (drawn(2, 8, size, 128, seed=n) for n, size in enumerate((4, 5000, 5000)))
    lengths = torch.tensor([5000, 4000], device="cuda", dtype=torch.int32)
    expected = ops.attention(q, k, v, lengths=lengths, causal=True)
    out, graph = torch.empty_like(q), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        ops.attention(q, k, v, out, lengths=lengths, causal=True)
    graph.replay()
    assert torch.equal(out, expected)
    lengths.fill_(3000)  # the captured launches read the lengths of each replay
    graph.replay()
    assert torch.equal(out, ops.attention(q, k, v, lengths=lengths, causal=True))

    def traced(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return ops.attention(q.relu(), k, v, causal=True, lse=True)

    found, lse = torch.compile(traced, fullgraph=True)(q, k, v)
    assert close(found, ops.attention(q.relu(), k, v, causal=True))
    assert lse.shape == (2, 8, 4)


def test_a_gradient_is_refused_and_torchs_function_is_replaced() -> None:
    q = drawn(1, 2, 64, 64).requires_grad_()
    with pytest.raises(UsageError, match=r"tuner\.ops has no backward pass"):
        ops.attention(q, q, q)
    found = ops.scaled_dot_product_attention(q, q, q, is_causal=True)  # torch's, which has a backward pass
    found.sum().backward()
    assert q.grad is not None
    with torch.no_grad():
        assert close(ops.scaled_dot_product_attention(q, q, q, is_causal=True), found)
        mask = torch.ones(64, 64, device="cuda", dtype=torch.bool).tril()
        assert close(ops.scaled_dot_product_attention(q, q, q, mask), found)
