"""Calls of max_pool2d and avg_pool2d: arguments as torch takes them, memory formats, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from cpu_launches import on_cpu
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional

from tuner import ops
from tuner.errors import UsageError
from tuner.kernels.avg_pool2d.call import CALL as AVG
from tuner.kernels.calling import run
from tuner.kernels.max_pool2d.call import CALL as MAX
from tuner.launching.calls import PreparedLaunches

X = torch.randn(2, 3, 9, 7, generator=torch.Generator().manual_seed(1))
LAST = X.to(memory_format=torch.channels_last)


@pytest.fixture(autouse=True)
def launches() -> Iterator[PreparedLaunches]:
    with on_cpu() as launches:
        yield launches


def close(found: Tensor, expected: Tensor) -> bool:
    return found.shape == expected.shape and bool(torch.allclose(found, expected, atol=1e-6))


CALLS: list[dict[str, Any]] = [
    {"kernel_size": 2},
    {"kernel_size": (3, 2), "stride": ()},
    {"kernel_size": [3], "stride": (2, 1), "padding": (1, 0)},
    {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
    {"kernel_size": (12, 3), "stride": 4, "ceil_mode": True},
]


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_arguments_mean_what_they_mean_to_torch(call: dict[str, Any]) -> None:
    assert close(ops.max_pool2d(X, **call), functional.max_pool2d(X, **call))
    assert close(ops.avg_pool2d(LAST, **call), functional.avg_pool2d(X, **call))


def test_windows_have_gaps_and_divisors() -> None:
    assert close(ops.max_pool2d(X, 2, 1, 1, (3, 2)), functional.max_pool2d(X, 2, 1, 1, (3, 2)))
    assert close(ops.avg_pool2d(X, 3, 2, 1, True, False), functional.avg_pool2d(X, 3, 2, 1, True, False))
    halves = functional.avg_pool2d(X, 3, 2, 1, divisor_override=-2)
    assert close(ops.avg_pool2d(X, 3, 2, 1, divisor_override=-2), halves)
    assert close(ops.avg_pool2d(X, 3, 2, 1), functional.avg_pool2d(X, 3, 2, 1))


def test_without_a_window_the_whole_image_is_one() -> None:
    assert close(ops.avg_pool2d(X), X.mean((2, 3), keepdim=True))
    assert ops.avg_pool2d(LAST).stride() == (3, 1, 3, 3)
    with pytest.raises(UsageError, match="avg_pool2d takes stride and padding with a kernel_size, not with None"):
        ops.avg_pool2d(X, stride=2)


def test_the_output_has_the_memory_format_of_the_input() -> None:
    assert ops.max_pool2d(X, 2).is_contiguous()
    found = ops.max_pool2d(LAST, 2)
    assert found.stride() == functional.max_pool2d(LAST, 2).stride()
    assert close(found, functional.max_pool2d(X, 2))
    image = ops.max_pool2d(X[0], 2)
    assert close(image, functional.max_pool2d(X[0], 2))
    assert image.is_contiguous()
    assert close(ops.avg_pool2d(LAST[1], 2), functional.avg_pool2d(X[1], 2))


def test_other_strides_are_copied() -> None:
    for x in (X.transpose(2, 3), X[:, :, ::2], X[..., 1:], X[:1].expand(4, 3, 9, 7), LAST[:, :2]):
        assert MAX.operands({"x": x, "out": torch.empty(0)[None, None, None]}, **MAX.takes_attributes) is None
        assert close(ops.max_pool2d(x, 2), functional.max_pool2d(x, 2))
    out = torch.empty(4, 3, 2, 3).transpose(0, 2)
    assert ops.avg_pool2d(X, 2, out=out) is out
    assert close(out, functional.avg_pool2d(X, 2))


def test_calls_that_compute_the_same_are_one_problem() -> None:
    def text(call: Any, **attributes: Any) -> str:
        out = torch.empty(call.shapes({"x": X}, **{**call.takes_attributes, **attributes})["out"])
        return str(call.problem({"x": X, "out": out}, **attributes).text)

    whole = "avg_pool2d B=2 C=3 H=9 W=7 R=9 S=7 stride_h=9 stride_w=9 dtype=fp32"
    assert text(AVG, R=9, S=7, stride_h=9, stride_w=7) == text(AVG, R=9, S=7, stride_h=1, stride_w=2) == whole
    assert text(AVG, R=9, S=7, stride_h=1, stride_w=2, ceil=True, count_include_pad=False) == whole
    assert text(MAX, R=3, S=3, stride_h=3, stride_w=3, ceil=True).endswith("dtype=fp32 ceil=True")
    assert text(MAX, R=3, S=2, stride_h=3, stride_w=1, ceil=True).endswith("dtype=fp32")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"kernel_size": 0}, "the window of rows is 1 or more, not 0"),
        ({"kernel_size": 2, "stride": (1, -1)}, "the stride of columns is 1 or more, not -1"),
        ({"kernel_size": 3, "padding": 2}, "the padding of rows is 0 to half a window of 3, not 2"),
        ({"kernel_size": (2, 8)}, "a window spans at most the 7 columns of the padded image, not 8"),
        ({"kernel_size": (2, 2, 2)}, r"a whole number or a pair as kernel_size, not \(2, 2, 2\)"),
        ({"kernel_size": True}, "a whole number or a pair as kernel_size, not True"),
        ({"kernel_size": 2, "stride": 1.5}, "a whole number or a pair as stride, not 1.5"),
        ({"kernel_size": 2, "ceil_mode": 1}, "True or False as ceil_mode, not 1"),
    ],
)
def test_what_torch_refuses_is_refused(call: dict[str, Any], message: str) -> None:
    for op in (ops.max_pool2d, ops.avg_pool2d):
        with pytest.raises(UsageError, match=message):
            op(X, **call)
    with pytest.raises((RuntimeError, TypeError)):
        functional.avg_pool2d(X, **call) if "ceil_mode" not in call else functional.avg_pool2d(X, 0)


def test_images_have_three_or_four_dims_and_elements() -> None:
    for x in (X[0, 0], X[:, :, :0], X[:, :0], X[None]):
        with pytest.raises(UsageError, match=r"images x \(B, C, H, W\) or \(C, H, W\) without a size of 0 but B, not"):
            ops.max_pool2d(x, 2)
    with pytest.raises(UsageError, match="max_pool2d takes tensors, and x is list"):
        ops.max_pool2d([[1.0]], 2)
    with pytest.raises(UsageError, match=r"bf16, fp16, fp32, and x is torch\.int32"):
        ops.max_pool2d(X.int(), 2)
    with pytest.raises(UsageError, match=r"an out of shape \(2, 3, 4, 3\) here, not \(2, 3, 4, 4\)"):
        ops.max_pool2d(X, 2, out=torch.empty(2, 3, 4, 4))
    for number in (0, 2.0, True, 2**63, 10**400):
        with pytest.raises(UsageError, match="takes a whole number of 64 bits but 0 as divisor_override, not"):
            ops.avg_pool2d(X, 2, divisor_override=number)  # type: ignore[arg-type]
    assert ops.max_pool2d(X[:0], 2).shape == (0, 3, 4, 3)


def test_torch_traces_a_call_with_shape_and_format() -> None:
    with FakeTensorMode() as mode:
        found = ops.max_pool2d(mode.from_tensor(LAST), 3, 2, 1)
        assert (found.shape, found.stride()) == ((2, 3, 5, 4), (60, 1, 12, 3))
        assert ops.avg_pool2d(mode.from_tensor(X), divisor_override=3).shape == (2, 3, 1, 1)
    compiled = torch.compile(lambda x: ops.avg_pool2d(x, (3, 2), 2, 1), backend="eager", fullgraph=True)
    assert close(compiled(X), functional.avg_pool2d(X, (3, 2), 2, 1))


def test_the_order_of_attributes_does_not_matter() -> None:
    x, out, other = torch.randn(1, 1, 5, 5), torch.empty(1, 1, 5, 5), torch.empty(1, 1, 5, 5)
    wide = {"R": 1, "S": 3, "stride_h": 1, "stride_w": 1, "padding_h": 0, "padding_w": 1, "ceil": False}
    tall = {"S": 1, "R": 3, "stride_w": 1, "stride_h": 1, "padding_w": 0, "padding_h": 1, "ceil": False}
    run(MAX, {"x": x, "out": out}, wide)
    run(MAX, {"x": x, "out": other}, tall)
    assert torch.equal(out, functional.max_pool2d(x, (1, 3), 1, (0, 1)))
    assert torch.equal(other, functional.max_pool2d(x, (3, 1), 1, (1, 0)))
