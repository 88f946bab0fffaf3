"""conv2d on a real card: as torch's, in graphs and under torch.compile."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tuner import catalog, ops

pytestmark = pytest.mark.gpu
LAST = torch.channels_last
CALLS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((4, 64, 56, 56), (64, 64, 3, 3), {"padding": 1}),
    ((3, 128, 28, 30), (256, 128, 3, 3), {"padding": 1, "stride": 2}),
    ((2, 3, 61, 67), (64, 3, 7, 7), {"padding": 3, "stride": 2}),
    ((5, 256, 14, 13), (512, 256, 1, 1), {}),
    ((5, 256, 15, 13), (512, 256, 1, 1), {"stride": 2}),
    ((2, 1280, 8, 8), (1280, 1280, 3, 3), {"padding": 1}),
    ((2, 320, 33, 31), (4, 320, 3, 3), {"padding": 1}),
    ((1, 96, 40, 50), (200, 96, 5, 2), {"padding": (4, 1), "stride": (2, 5), "dilation": (2, 3)}),
    ((2, 17, 20, 21), (33, 17, 3, 3), {"padding": 2, "dilation": 2}),
]


@pytest.fixture(autouse=True)
def database(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_DB", str(tmp_path / "tuner.db"))


def drawn(size: tuple[int, ...], dtype: torch.dtype = torch.float16) -> Tensor:
    generator = torch.Generator("cuda").manual_seed(sum(size))
    x = torch.randn(size, device="cuda", generator=generator).to(dtype)
    return x.to(memory_format=LAST) if len(size) == 4 else x


def close(found: Tensor, expected: Tensor) -> bool:
    """Return whether a result is off by two roundings of its largest value at most; tf32 rounds to 10 bits."""
    step = torch.finfo(found.dtype).eps if found.dtype != torch.float32 else 2.0**-9
    return found.shape == expected.shape and bool((found - expected).abs().max() <= 2 * step * expected.abs().max())


def test_infinite_filters_meet_the_zeros_around_an_image_as_in_the_reference() -> None:
    """cuDNN's fp64 convolution, which the reference was, leaves these products out."""
    kernel = catalog.load("conv2d")
    sizes = {"B": 4, "C": 3, "H": 224, "W": 20, "O": 480, "R": 3, "S": 3, "padding_h": 1, "padding_w": 1}
    problem = kernel.signature.problem({**sizes, "dtype": "bf16"})
    x, weight = drawn((4, 3, 224, 20), torch.bfloat16), drawn((480, 3, 3, 3), torch.bfloat16)
    weight[71, 0, 0, 0] = torch.inf
    found = ops.conv2d(x, weight, padding=1)
    expected = kernel.reference(problem, {"x": x, "weight": weight}, slice(None))["out"]
    assert found[0, 71, 0, 0].isnan()
    assert torch.equal(found.isnan(), expected.isnan())
    assert torch.equal(found.isinf(), expected.isinf())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize(("size", "filters", "call"), CALLS)
def test_results_are_those_of_torch(
    size: tuple[int, ...], filters: tuple[int, ...], call: dict[str, Any], dtype: torch.dtype
) -> None:
    x, weight, bias = drawn(size, dtype), drawn(filters, dtype), drawn(filters[:1], dtype)
    expected = functional.conv2d(x.double(), weight.double(), bias.double(), **call)
    found = ops.conv2d(x, weight, bias, **call)
    assert found.is_contiguous(memory_format=LAST)
    assert close(found, expected)
    assert torch.equal(ops.conv2d(x, weight, bias, **call), found)
    assert torch.equal(ops.conv2d(x.contiguous(), weight, bias, **call), found)
    assert close(ops.conv2d(x, weight, activation="relu", **call), (expected - bias.double()[:, None, None]).relu())


def test_tensors_that_begin_anywhere_go_through_pointers() -> None:
    memory, weight = drawn((2 * 20 * 20 * 64 + 8,)), drawn((128, 64, 3, 3))
    for offset in (0, 1, 4, 8):
        x = memory[offset : offset + 2 * 20 * 20 * 64].view(2, 20, 20, 64).permute(0, 3, 1, 2)
        assert close(ops.conv2d(x, weight, padding=1), functional.conv2d(x.double(), weight.double(), padding=1))


def test_more_than_2_31_elements() -> None:
    x = torch.zeros(3, 64, 4000, 3000, device="cuda", dtype=torch.float16).to(memory_format=LAST)
    x[2, 5, 3999, 2999] = 3
    weight = drawn((8, 64, 1, 1))
    out = ops.conv2d(x, weight)
    assert torch.equal(out[2, :, 3999, 2999], 3 * weight[:, 5, 0, 0])
    assert int(out.count_nonzero()) == 8


def test_a_graph_repeats_the_call() -> None:
    x, weight = drawn((2, 1280, 8, 8)), drawn((1280, 1280, 3, 3))
    out = ops.conv2d(x, weight, padding=1)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        ops.conv2d(x, weight, padding=1, out=out)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            ops.conv2d(x, weight, padding=1, out=out)
    x.copy_(drawn((2, 1280, 8, 8)) * 2)
    expected = ops.conv2d(x, weight, padding=1)
    out.fill_(float("nan"))
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, expected)


def test_it_compiles_as_one_graph() -> None:
    x, weight = drawn((4, 64, 28, 28)), drawn((128, 64, 3, 3))
    compiled = torch.compile(lambda x: ops.conv2d(x * 2, weight, padding=1, activation="relu") + 1, fullgraph=True)
    assert close(compiled(x), functional.conv2d(x.double() * 2, weight.double(), padding=1).relu() + 1)
