"""The ops inside `torch.compile`, which removes copies that a functional graph does not need: Inductor on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from cpu_launches import on_cpu
from helpers import toy
from torch import Tensor
from torch._dynamo.utils import counters

from tuner import catalog, ops
from tuner.client import Client
from tuner.launching.launch import Launches, Ready

F8 = torch.float8_e4m3fn


@pytest.fixture(autouse=True)
def launches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    torch._dynamo.reset()
    with on_cpu():
        yield


Call = Callable[[Tensor, Tensor], Tensor]


COPIES: dict[str, tuple[Call, Call]] = {
    "softmax": (lambda x, y: ops.softmax(x.clone(), out=x), lambda x, y: x.softmax(1)),
    "softmax, shifted": (lambda x, y: ops.softmax(x[1:].clone(), out=x[:-1]), lambda x, y: x[1:].softmax(1)),
    "transpose": (lambda x, y: ops.transpose(x.clone(), out=x), lambda x, y: x.t()),
    "gemm": (lambda x, y: ops.gemm(x.clone(), y, out=x, bias=x[0].clone()), lambda x, y: x @ y + x[0]),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("case", COPIES)
def test_a_copy_of_what_is_overwritten_is_read_as_it_was(case: str) -> None:
    call, expected = COPIES[case]
    x, y = torch.randn(16, 16), torch.randn(16, 16)
    reference = expected(x.clone(), y)
    compiled = torch.compile(call, fullgraph=True)
    for _ in range(2):
        assert torch.allclose(call(x.clone(), y), reference, atol=1e-5)
        given = x.clone()
        assert torch.allclose(compiled(given, y), reference, atol=1e-5)
        assert torch.allclose(given[: len(reference)], reference, atol=1e-5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scales_that_are_overwritten_are_read_as_they_were() -> None:
    def call(a: Tensor, b: Tensor, memory: Tensor) -> Tensor:
        return ops.scaled_gemm(a, b, memory[0, :1].clone(), memory[0, 1], out=memory.view(torch.bfloat16)[:, :16])

    a, b, memory = torch.ones(8, 32).to(F8), torch.ones(16, 32).to(F8).t(), torch.full((8, 8), 2.0)
    compiled = torch.compile(call, fullgraph=True)
    assert bool((compiled(a, b, memory) == 128).all())


def test_an_op_in_place_of_its_input_is_computed_through_a_new_tensor() -> None:
    """The graph does not say whether the model or the compiler made them the same."""
    x = torch.randn(8, 8)
    expected = x.t().contiguous()
    torch.ops.tuner.transpose(x, x)
    assert torch.equal(x, expected)


@pytest.mark.parametrize("dynamic", [None, True])
def test_a_scalar_that_varies_is_compiled_for_all_its_values(dynamic: bool | None) -> None:
    """`aot_eager` traces as the default backend does, which makes constants of the numbers that a custom op gets."""
    counters.clear()
    compiled = torch.compile(
        lambda x, eps: ops.layer_norm(x, eps=eps) + 1, backend="aot_eager", fullgraph=True, dynamic=dynamic
    )
    x = torch.randn(4, 8)
    for eps in (1e-6, 1e-5, 1e-3, 0.5, 2.0):
        assert torch.allclose(compiled(x, eps), torch.nn.functional.layer_norm(x, (8,), eps=eps) + 1, atol=1e-6)
    assert counters["stats"]["unique_graphs"] == (1 if dynamic else 2)


def test_a_scalar_that_varies_is_on_the_host_whatever_the_default_device() -> None:
    """On a card, each call would wait for it."""
    compiled = torch.compile(lambda x, eps: ops.layer_norm(x, eps=eps), backend="aot_eager", fullgraph=True)
    x = torch.randn(4, 8)
    with torch.device("meta"):
        for eps in (0.5, 1.0, 2.0):
            assert torch.allclose(compiled(x, eps), torch.nn.functional.layer_norm(x, (8,), eps=eps), atol=1e-6)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_graph_breaks_around_a_launch_of_a_kernel() -> None:
    kernel = catalog.resolve(toy("double"))
    by_tensor = Ready(None, lambda given: given["out"].copy_(2 * given["x"]))
    launches = Launches(Client(), ready_of=lambda *_: by_tensor, runs_on="cpu")

    def model(x: Tensor) -> Tensor:
        x, out = x + 1, torch.empty_like(x)
        launches.launch(kernel, x=x, out=out)
        return out + 1

    whole = torch.compile(model, backend="eager", fullgraph=True)
    with pytest.raises(Exception, match=r"tuner\.launch runs outside of graphs; compile without fullgraph=True"):
        whole(torch.ones(8))
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="eager")
    for value in (1.0, 3.0):
        assert torch.equal(compiled(torch.full((8,), value)), torch.full((8,), 2 * (value + 1) + 1))
