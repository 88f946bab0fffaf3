"""Calls of attention: sequences dense, packed and in pages, what is refused, and what takes the place of torch's."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import torch
from cpu_launches import on_cpu
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.nn.attention.bias import causal_lower_right

from tuner import ops
from tuner.errors import UsageError
from tuner.kernels.attention.call import CALL
from tuner.kernels.attention.for_torch import unserved
from tuner.launching.calls import PreparedLaunches
from tuner.launching.inferred import problem_of


@pytest.fixture(autouse=True)
def launches() -> Iterator[PreparedLaunches]:
    with on_cpu() as launches:
        yield launches


def drawn(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).half()


Q, K, V = drawn(2, 4, 5, 16), drawn(2, 2, 9, 16, seed=2), drawn(2, 2, 9, 16, seed=3)
BOUNDS_Q, BOUNDS_K = torch.tensor([0, 3, 7], dtype=torch.int32), torch.tensor([0, 4, 13], dtype=torch.int32)


def close(found: Tensor, expected: Tensor) -> bool:
    return found.shape == expected.shape and bool(torch.allclose(found.double(), expected.double(), atol=2e-3))


def by_torch(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    return functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), enable_gqa=True, **options)


def test_dense_sequences_with_heads_that_share_keys() -> None:
    assert close(ops.attention(Q, K, V), by_torch(Q, K, V))
    assert close(ops.attention(Q, K, V, scale=0.5), by_torch(Q, K, V, scale=0.5))
    by_rows = Q.transpose(1, 2).contiguous().transpose(1, 2)
    out = torch.empty_like(by_rows)
    assert ops.attention(by_rows, K, V, out) is out
    assert close(out, by_torch(Q, K, V))
    assert close(ops.attention(Q.mT.contiguous().mT, K, V), by_torch(Q, K, V))


def test_a_causal_mask_ends_at_the_last_key() -> None:
    expected = by_torch(Q, K, V, attn_mask=causal_lower_right(5, 9)._materialize())
    assert close(ops.attention(Q, K, V, causal=True), expected)
    found, lse = ops.attention(K, Q[:, :2], V[:, :, :5], causal=True, lse=True)
    assert not found[:, :, :4].any()  # rows that see no key
    assert torch.equal(lse[:, :, :4], torch.full((2, 2, 4), -torch.inf))
    assert bool(lse[:, :, 4:].isfinite().all())


def test_a_window_and_a_cap() -> None:
    scores = Q.double() @ K.double().repeat_interleave(2, 1).mT / 4
    m, n = torch.arange(5)[:, None] + 4, torch.arange(9)
    seen = (n <= m) & (n > m - 3)
    weights = (5 * torch.tanh(scores / 5)).masked_fill(~seen, -torch.inf)
    found, lse = ops.attention(Q, K, V, causal=True, window=3, cap=5.0, lse=True)
    assert close(found, weights.softmax(3) @ V.double().repeat_interleave(2, 1))
    assert close(lse, weights.logsumexp(3))


def test_packed_sequences() -> None:
    q, k, v = drawn(7, 4, 16), drawn(13, 2, 16, seed=2), drawn(13, 2, 16, seed=3)
    found, lse = ops.attention(q, k, v, cu_q=BOUNDS_Q, cu_k=BOUNDS_K, longest_q=4, longest_k=9, causal=True, lse=True)
    assert lse.shape == (7, 4)
    for (first, end), (start, stop) in zip(pairwise(BOUNDS_Q), pairwise(BOUNDS_K), strict=True):
        one = (q[first:end], k[start:stop], v[start:stop])
        expected = ops.attention(*(x.transpose(0, 1)[None] for x in one), causal=True)
        assert close(found[first:end], expected[0].transpose(0, 1))


def test_pages_and_lengths() -> None:
    lengths = torch.tensor([20, 33], dtype=torch.int32)
    table = torch.tensor([[4, 1, -1], [0, 3, 2]], dtype=torch.int32)
    k, v = drawn(5, 16, 2, 16, seed=2), drawn(5, 16, 2, 16, seed=3)
    dense = [x[table.long()].flatten(1, 2).transpose(1, 2) for x in (k, v)]
    q = drawn(2, 4, 3, 16)
    found = ops.attention(q, k, v, table=table, lengths=lengths, causal=True)
    for b, length in enumerate(lengths.tolist()):
        one = (q[b : b + 1], *(x[b : b + 1, :, :length] for x in dense))
        assert close(found[b : b + 1], ops.attention(*one, causal=True))
    assert close(found, ops.attention(q, *dense, lengths=lengths, causal=True))
    packed = q.transpose(1, 2).reshape(6, 4, 16)
    bounds = torch.tensor([0, 3, 6], dtype=torch.int32)
    again = ops.attention(packed, k, v, table=table, lengths=lengths, cu_q=bounds, longest_q=3, causal=True)
    assert close(again.view(2, 3, 4, 16).transpose(1, 2), found)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"q": Q[:, :3]}, "attention shares heads of k evenly, not 2 among 3 of q"),
    ({"q": Q[..., :12], "k": K[..., :12], "v": V[..., :12]}, "head size is a multiple of 8 up to 256, not 12"),
    ({"v": V[..., :8]}, r"takes a tensor v of shape \(2, 2, 9, 16\) here, not \(2, 2, 9, 8\)"),
    ({"q": Q[0]}, "takes q with 4 dims if sequences are dense"),
    ({"scale": -1.0}, "attention's scale is above 0"),
    ({"window": -1}, "attention's window is a number of keys, not -1"),
    ({"cu_q": BOUNDS_Q}, "takes q with 3 dims if sequences are packed"),
    ({"table": BOUNDS_Q[None]}, "takes a table with the lengths of the sequences"),
    ({"lengths": torch.tensor([1, 2])}, "attention's lengths is int32, not torch.int64"),
    ({"q": Q.float(), "k": K.float(), "v": V.float()}, "attention takes bf16, fp16, and q is torch.float32"),
    ({"q": Q.clone().requires_grad_()}, "tuner.ops has no backward pass, and a tensor requires a gradient"),
    ({"q": [1.0]}, "attention takes tensors, and q is list"),
]


@pytest.mark.parametrize(("given", "message"), REFUSED, ids=[message[:40] for _, message in REFUSED])
def test_what_does_not_fit_is_refused_in_one_line(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as refused:
        ops.attention(**{"q": Q, "k": K, "v": V, **given})
    assert "\n" not in str(refused.value)


def test_no_keys_and_no_rows() -> None:
    out, lse = ops.attention(Q, K[:, :, :0], V[:, :, :0], lse=True)
    assert not out.any()
    assert torch.equal(lse, torch.full((2, 4, 5), -torch.inf))
    assert ops.attention(Q[:, :, :0], K, V).shape == (2, 4, 0, 16)


def test_it_is_traced() -> None:
    with FakeTensorMode() as mode:
        found, lse = ops.attention(*map(mode.from_tensor, (Q, K, V)), causal=True, lse=True)
    assert found.shape == Q.shape
    assert lse.shape == (2, 4, 5)
    problem = CALL.problem({"q": Q, "k": K, "v": V, "out": Q}, causal=True, window=7)
    assert problem.text == "attention B=2 H=4 G=2 M=5 N=9 D=16 dtype=fp16 causal=True window=7"


def test_it_is_compiled_into_one_graph() -> None:
    def call(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return ops.attention(q + 1, k, v, causal=True, lse=True)

    found, lse = torch.compile(call, backend="aot_eager", fullgraph=True)(Q, K, V)
    expected, logs = call(Q, K, V)
    assert torch.equal(found, expected)
    assert torch.equal(lse, logs)


def test_a_launch_by_name_infers_the_dims() -> None:
    tensors = {"q": Q, "k": K, "v": V, "out": torch.empty_like(Q)}
    assert problem_of(CALL.kernel, tensors, {}).text == "attention B=2 H=4 G=2 M=5 N=9 D=16 dtype=fp16"
    given = problem_of(CALL.kernel, tensors, {"D": 16, "causal": True})
    assert given.text == "attention B=2 H=4 G=2 M=5 N=9 D=16 dtype=fp16 causal=True"


def test_torch_is_called_for_what_is_not_served(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tuner"):
        for _ in range(2):
            found = ops.scaled_dot_product_attention(Q, K, V, enable_gqa=True)
    assert torch.equal(found, functional.scaled_dot_product_attention(Q, K, V, enable_gqa=True))
    assert [record.getMessage() for record in caplog.records] == [
        "scaled_dot_product_attention calls torch's, since attention runs on a GPU"
    ]


def test_what_torchs_function_takes_and_attention_does_not() -> None:
    meta = [torch.empty_like(x, device="meta") for x in (Q, K, V)]

    class OnGpu:
        """A tensor of which the device is said to be a GPU's."""

        device = torch.device("cuda")

        def __init__(self, tensor: Tensor) -> None:
            self._tensor = tensor

        def __getattr__(self, name: str) -> Any:
            return getattr(self._tensor, name)

    def reason(*tensors: Tensor, mask: Any = None, dropout: float = 0.0, causal: bool = False, gqa: bool = True) -> Any:
        q, k, v = (OnGpu(x) for x in tensors)
        return unserved(q, k, v, mask, dropout, causal, None, gqa)

    assert reason(*meta) is None
    assert "enable_gqa" in reason(*meta, gqa=False)
    assert "no mask" in reason(*meta, mask=Q)
    assert "no dropout" in reason(*meta, dropout=0.1)
    assert "as many rows as keys" in reason(*meta, causal=True)
    assert "bf16 or fp16" in reason(*(x.float() for x in meta))
    assert "head size" in reason(*(x[..., :12] for x in meta))
    assert "not (4, 5, 16)" in reason(meta[0][0], *meta[1:])
