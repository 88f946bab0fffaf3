"""max_pool2d and avg_pool2d on a real card: as torch's, in graphs and under torch.compile."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tuner import ops

pytestmark = pytest.mark.gpu
CALLS: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((4, 64, 112, 112), {"kernel_size": 3, "stride": 2, "padding": 1}),
    ((3, 24, 57, 43), {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True}),
    ((2, 96, 35, 35), {"kernel_size": 3, "stride": 1, "padding": 1}),
    ((2, 40, 20, 20), {"kernel_size": 13, "stride": 1, "padding": 6}),
    ((5, 17, 30, 44), {"kernel_size": 2}),
    ((2, 9, 41, 77), {"kernel_size": (7, 35), "stride": (3, 9), "padding": (3, 17)}),
    ((7, 333, 7, 7), {"kernel_size": 7}),
    ((2, 3, 301, 203), {"kernel_size": (301, 203)}),
    ((1, 3, 43, 1), {"kernel_size": (41, 1), "stride": 1}),
    ((1, 1, 2003, 3), {"kernel_size": (2001, 3), "stride": 1}),
]


@pytest.fixture(autouse=True)
def database(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_DB", str(tmp_path / "tuner.db"))


def drawn(size: tuple[int, ...], dtype: torch.dtype = torch.bfloat16) -> Tensor:
    generator = torch.Generator("cuda").manual_seed(sum(size))
    return torch.randn(size, device="cuda", generator=generator).to(dtype)


def close(found: Tensor, expected: Tensor) -> bool:
    """Return whether a result is off by two roundings of its largest values at most."""
    largest = 2 * torch.finfo(found.dtype).eps * expected.abs().max()
    return found.shape == expected.shape and bool((found.double() - expected).abs().max() <= largest)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=["nchw", "nhwc"])
@pytest.mark.parametrize(("size", "call"), CALLS)
def test_results_are_those_of_torch(size: tuple[int, ...], call: dict[str, Any], memory_format: Any) -> None:
    for dtype in (torch.bfloat16, torch.float32):
        x = drawn(size, dtype).to(memory_format=memory_format)
        found = ops.max_pool2d(x, **call)
        assert torch.equal(found, functional.max_pool2d(x, **call))
        assert found.is_contiguous(memory_format=memory_format)
        wide = x.double().contiguous()
        assert close(ops.avg_pool2d(x, **call), functional.avg_pool2d(wide, **call))
        given = {**call, "count_include_pad": False, "divisor_override": None}
        assert close(ops.avg_pool2d(x, **given), functional.avg_pool2d(wide, **given))
        assert close(
            ops.avg_pool2d(x, **call, divisor_override=5), functional.avg_pool2d(wide, **call, divisor_override=5)
        )
        assert close(ops.avg_pool2d(x), wide.mean((2, 3), keepdim=True))


def test_nan_infinities_and_tensors_that_begin_anywhere_are_as_in_torch() -> None:
    memory = drawn((2 * 8 * 33 * 35 + 8,))
    for offset in (0, 1, 4):
        x = memory[offset : offset + 2 * 8 * 33 * 35].view(2, 8, 33, 35)
        x[0, 0, 3, 5], x[1, 2, 20:, 7], x[1, 3] = float("nan"), float("inf"), -float("inf")
        calls: tuple[dict[str, Any], ...] = ({"kernel_size": 3, "stride": 2, "padding": 1}, {"kernel_size": (33, 35)})
        for call in calls:
            expected = functional.max_pool2d(x, **call)
            assert torch.equal(ops.max_pool2d(x, **call).nan_to_num(nan=7), expected.nan_to_num(nan=7))


def test_the_last_elements_belong_to_each_window_that_has_them() -> None:
    """They are no whole group of 16 bytes, and the windows share rows."""
    for size in ((1, 3, 43, 1), (1, 1, 2003, 3)):
        x = drawn(size)
        x[..., -1, -1] = 9
        window = (size[2] - 1, size[3])
        assert torch.equal(ops.max_pool2d(x, window, 1), functional.max_pool2d(x, window, 1))


def test_compiled_and_captured_calls_are_as_eager_ones() -> None:
    x = drawn((4, 64, 56, 56)).to(memory_format=torch.channels_last)

    def model(x: Tensor) -> Tensor:
        return ops.avg_pool2d(ops.max_pool2d(x.relu(), 3, 2, 1))

    expected = model(x)
    found = torch.compile(model, fullgraph=True)(x)
    assert torch.equal(found, expected)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = model(x)
    captured.zero_()
    graph.replay()
    assert torch.equal(captured, expected)


def test_parts_of_an_image_leave_the_workspace_as_it_was() -> None:
    """Few large images are split among programs; the same launch runs again, on two streams at once too."""
    x = drawn((1, 16, 512, 700))
    expected = x.double().mean((2, 3), keepdim=True)
    streams = [torch.cuda.Stream() for _ in range(2)]
    torch.cuda.synchronize()
    found = []
    for turn in range(20):
        with torch.cuda.stream(streams[turn % 2]):
            found.append(ops.avg_pool2d(x))
    torch.cuda.synchronize()
    assert all(torch.equal(each, found[0]) for each in found)
    assert close(found[0], expected)
