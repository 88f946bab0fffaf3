"""reduce on a real card: views, ties and NaN, bits that repeat, graphs and torch.compile."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tuner import ops

pytestmark = pytest.mark.gpu
INF, NAN = float("inf"), float("nan")


@pytest.fixture(autouse=True)
def database(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_DB", str(tmp_path / "tuner.db"))


def drawn(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(shape, device="cuda", generator=torch.Generator("cuda").manual_seed(1)).to(dtype)


VIEWS = {
    "dense": lambda: drawn(1311, 4352),
    "odd rows": lambda: drawn(1311, 4353),
    "short odd rows": lambda: drawn(70001, 33),
    "rows with gaps": lambda: drawn(1000, 520)[:, :517],
    "a matrix that begins anywhere": lambda: drawn(1000 * 129 + 1)[1:].view(1000, 129),
    "a transpose": lambda: drawn(517, 3000).t(),
    "few rows": lambda: drawn(5, 100_001),
    "one row": lambda: drawn(1, 3_000_017),
    "several dims": lambda: drawn(8, 33, 500),
    "one row for all": lambda: drawn(1001).expand(300, 1001),
}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("kind", ["sum", "amax", "logsumexp"])
def test_results_are_those_of_torch(name: str, kind: str) -> None:
    x = VIEWS[name]()
    for dim in (0, -1, None):
        expected = getattr(torch, kind)(x.double(), tuple(range(x.ndim)) if dim is None else dim)
        out = ops.reduce(x, "max" if kind == "amax" else kind, dim=dim)
        size = 1.0 if kind == "amax" else expected.abs().clamp(min=(x.numel() / max(1, out.numel())) ** 0.5)
        assert ((out.double() - expected).abs() <= 0.01 * size).all(), dim


def test_logsumexp_of_very_negative_values_is_a_number() -> None:
    x = drawn(1001, 517, dtype=torch.float32) - 1000  # exp(1000) is inf
    x[3] = -INF
    for dim in (0, -1, None):
        expected = x.double().logsumexp((0, 1) if dim is None else dim).float()
        assert torch.allclose(ops.reduce(x, "logsumexp", dim=dim), expected)


@pytest.mark.parametrize("name", VIEWS)
def test_indices_are_those_of_the_first(name: str) -> None:
    x = VIEWS[name]().clone().round()  # many are equal
    if x.ndim == 2:
        x[0, 1:3], x[-1, -1] = NAN, INF
    for dim in (0, -1):
        values, indices = ops.reduce(x, "min", dim=dim, index=True)
        expected = x.cpu().min(dim)
        assert torch.equal(indices.cpu(), expected.indices)
        assert torch.equal(values.cpu().nan_to_num(5.0), expected.values.nan_to_num(5.0))
    flat = x.contiguous().view(-1)
    assert ops.reduce(x, "max", index=True)[1].item() == flat.cpu().max(0).indices.item()


@pytest.mark.parametrize("arguments", [{}, {"dim": 0}, {"dim": -1}])
def test_bits_repeat(arguments: dict[str, Any]) -> None:
    x = drawn(3, 1_000_003, dtype=torch.float32) if arguments.get("dim") == -1 else drawn(1_000_003, 3).float()
    first = ops.reduce(x, **arguments)
    assert all(torch.equal(ops.reduce(x, **arguments), first) for _ in range(100))


def test_programs_that_share_results_do_so_on_each_stream_and_in_graphs() -> None:
    x, streams = drawn(4, 2_000_000), [torch.cuda.Stream() for _ in range(3)]
    expected = ops.reduce(x, "mean", dim=-1)
    torch.cuda.synchronize()
    found = []
    for turn in range(60):
        with torch.cuda.stream(streams[turn % 3]):
            found.append(ops.reduce(x, "mean", dim=-1))
    torch.cuda.synchronize()
    assert all(torch.equal(each, expected) for each in found)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = ops.reduce(x, "mean", dim=-1)
    x.add_(1.0)
    for _ in range(3):
        graph.replay()
    assert torch.equal(out, ops.reduce(x, "mean", dim=-1))


def test_torch_compiles_it_whole() -> None:
    def model(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        values, indices = ops.reduce(x * 2, "max", dim=-1, index=True)
        return values, indices, ops.reduce(x, "logsumexp", dim=0) + ops.reduce(x)

    x = drawn(300, 1001)
    compiled: Any = torch.compile(model, fullgraph=True)
    with torch.no_grad():
        for got, expected in zip(compiled(x), model(x), strict=True):
            assert torch.equal(got, expected)
