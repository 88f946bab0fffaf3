"""Elementwise ops on a real card: accuracy of instructions that the interpreter lacks, views, graphs, torch.compile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import gelu, silu

from tuner import ops

pytestmark = pytest.mark.gpu
INF, NAN = float("inf"), float("nan")
FUNCTIONS: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor]]] = {
    "silu": (ops.silu, silu),
    "gelu": (ops.gelu, gelu),
    "gelu tanh": (lambda x: ops.gelu(x, "tanh"), lambda x: gelu(x, approximate="tanh")),
    "silu_mul": (lambda x: ops.silu_mul(x, x), lambda x: silu(x) * x),
}


@pytest.fixture(autouse=True)
def database(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_DB", str(tmp_path / "tuner.db"))


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_every_number_of_16_bits_is_rounded_once(name: str, dtype: torch.dtype) -> None:
    """Half an epsilon, or half of the least number, is a rounding. Numbers beyond -6 may also be 0."""
    ours, torchs = FUNCTIONS[name]
    x = torch.arange(-(2**15), 2**15, device="cuda", dtype=torch.int32).to(torch.int16).view(dtype)
    expected, got = torchs(x.double()), ours(x).double()
    assert torch.equal(got.isnan(), expected.isnan())
    info = torch.finfo(dtype)
    large = expected.abs() > info.max
    assert ((got == expected) | (got.abs() >= info.max))[large].all()
    rest = ~large & ~expected.isnan()
    least = torch.where(x.double() < -6, max(2e-8, 0.6 * info.tiny * info.eps), info.tiny * info.eps)
    apart = (got - expected).abs() - 0.6 * info.eps * expected.abs() - least
    assert (apart[rest] <= 0).all(), (x[rest][apart[rest].argmax()], apart[rest].max())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_values_of_fp32_are_as_in_torch(name: str) -> None:
    ours, torchs = FUNCTIONS[name]
    x = torch.tensor([0.0, -0.0, INF, -INF, NAN, 1e18, -1e18, 3e-38, 89.0, -89.0, 200.0, -200.0], device="cuda")
    assert torch.allclose(ours(x), torchs(x), rtol=1e-5, atol=1e-35, equal_nan=True)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[:, :, :1001],
        lambda x: x[::2],
        lambda x: x.transpose(0, 1),
        lambda x: x[..., 1::2],
        lambda x: x[1:, :3, 5:70],
        lambda x: x.view(-1)[1:],
        lambda x: x[0, 0, 0],
    ],
)
def test_views_are_as_their_copies(view: Callable[[Tensor], Tensor]) -> None:
    x = view(torch.randn(6, 8, 2048, device="cuda", dtype=torch.bfloat16))
    for ours, _ in FUNCTIONS.values():
        assert torch.equal(ours(x), ours(x.clone(memory_format=torch.contiguous_format)))
    assert torch.equal(ops.add(x, x), x + x)


@pytest.mark.parametrize("N", [14336, 11004, 11007, 129, 1])
def test_halves_of_a_tensor_are_as_two_tensors(N: int) -> None:
    both = torch.randn(37, 2 * N, device="cuda", dtype=torch.bfloat16)
    gate, up = both.chunk(2, dim=-1)
    expected = ops.silu_mul(gate.contiguous(), up.contiguous())
    assert torch.equal(ops.silu_mul(both), expected)
    in_place = both.clone()
    ops.silu_mul(in_place, out=in_place[:, :N])
    assert torch.equal(in_place[:, :N], expected)
    assert torch.equal(ops.silu_mul(gate, up), expected)
    ops.silu_mul(gate, up, out=gate)
    assert torch.equal(both[:, :N], expected)


def test_a_graph_replays_them_on_new_inputs() -> None:
    x = torch.randn(64, 2048, device="cuda", dtype=torch.bfloat16)
    ops.silu_mul(ops.gelu(ops.add(x, x)))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = ops.silu_mul(ops.gelu(ops.add(x, x)))
    x.normal_()
    graph.replay()
    assert torch.equal(out, ops.silu_mul(ops.gelu(ops.add(x, x))))


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
def test_a_compiled_model_calls_them() -> None:
    x = torch.randn(64, 2048, device="cuda", dtype=torch.bfloat16)

    def model(x: Tensor) -> Tensor:
        return ops.silu_mul(ops.gelu(ops.add(x, ops.silu(x)), approximate="tanh")) * 2

    assert torch.equal(torch.compile(model, fullgraph=True)(x), model(x))
