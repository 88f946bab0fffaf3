"""rms_norm and layer_norm on a real card: as torch's on views, in place, in graphs and under torch.compile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import layer_norm, rms_norm

from tuner import ops

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def database(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_DB", str(tmp_path / "tuner.db"))


def drawn(*size: int) -> Tensor:
    generator = torch.Generator("cuda").manual_seed(sum(size))
    return torch.randn(size, device="cuda", generator=generator).bfloat16()


def close(found: Tensor, expected: Tensor) -> bool:
    """Return whether a result of bf16 is off by two roundings of its largest values at most."""
    return bool((found.double() - expected).abs().max() <= 2.0**-7 * expected.abs().max())


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x,
        lambda x: x[:, :, :1001],
        lambda x: x[:, 0, 3:1000],
        lambda x: x.transpose(0, 1),
        lambda x: x[..., ::2],
        lambda x: x[:, :3],
        lambda x: x.view(-1)[1 : 1 + 5 * 2047].view(5, 2047),
        lambda x: x[0, 0],
        lambda x: x[0, 0].expand(100, 2048),
        lambda x: x[..., :1],
    ],
)
def test_views_are_as_torch_has_them(view: Callable[[Tensor], Tensor]) -> None:
    x = view(drawn(6, 8, 2048))
    weight, bias = drawn(x.shape[-1]), drawn(x.shape[-1] + 1)[1:]
    wide, given = x.double(), (weight.double(), bias.double())
    assert close(ops.rms_norm(x, weight), rms_norm(wide, x.shape[-1:], given[0], 1e-6))
    out, mean, rstd = ops.layer_norm(x, weight, bias, stats=True)
    assert close(out, layer_norm(wide, x.shape[-1:], *given))
    assert torch.allclose(mean.double(), wide.mean(-1), atol=1e-5)
    assert torch.allclose(rstd.double(), (wide.var(-1, correction=0) + 1e-5).rsqrt(), rtol=1e-4)


@pytest.mark.parametrize(("M", "N"), [(64, 4096), (64, 4097), (3, 131_072), (300, 70_001), (4000, 96)])
def test_in_place_is_as_out_of_place(M: int, N: int) -> None:
    x, residual, weight = drawn(M, N), drawn(M, N + 1)[:, :N], drawn(N)
    out, total = ops.rms_norm(x, weight, residual)
    assert torch.equal(total, x + residual)
    assert close(out, rms_norm((x + residual).double(), (N,), weight.double(), 1e-6))
    both = ops.rms_norm(x.clone(), weight, residual.clone())
    assert close(both[0], out.double())
    ops.rms_norm(x, weight, residual, out=x, residual_out=residual)
    assert torch.equal(residual, total)
    assert close(x, out.double())


def test_torch_compile_has_one_graph() -> None:
    x, residual, weight = drawn(33, 1000), drawn(33, 1000), drawn(1000)

    def block(x: Tensor, residual: Tensor) -> tuple[Tensor, ...]:
        out, residual = ops.rms_norm(x, weight, residual, eps=1e-5)
        return *ops.layer_norm(out, weight, stats=True), residual

    expected = block(x, residual)
    found = torch.compile(block, fullgraph=True)(x, residual)
    assert all(torch.allclose(a.float(), b.float(), rtol=0.02, atol=0.02) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("N", [1024, 131_072])
def test_a_graph_replays_them(N: int) -> None:
    x, weight = drawn(4, N), drawn(N)
    ops.rms_norm(x, weight)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = ops.rms_norm(x, weight)
    x.copy_(drawn(4, N) * 3 + 1)
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    assert close(out, rms_norm(x.double(), (N,), weight.double(), 1e-6))
