"""Calls of conv2d: arguments as torch takes them, memory formats, and what is refused."""

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
from tuner.kernels.conv2d.call import CALL
from tuner.launching.calls import PreparedLaunches

LAST = torch.channels_last


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


X, W, BIAS = drawn(2, 6, 9, 7), drawn(5, 6, 3, 2), drawn(5)


@pytest.fixture(autouse=True)
def launches() -> Iterator[PreparedLaunches]:
    with on_cpu() as launches:
        yield launches


def close(found: Tensor, expected: Tensor) -> bool:
    return found.shape == expected.shape and bool(torch.allclose(found, expected, atol=2e-5))


@pytest.mark.parametrize(
    "call",
    [
        {},
        {"stride": 2, "padding": 1},
        {"stride": [3, 2], "padding": (0, 2), "dilation": (2, 1)},
        {"padding": "valid", "stride": 2},
        {"stride": 100},
        {"padding": 5},
    ],
    ids=str,
)
def test_arguments_mean_what_they_mean_to_torch(call: dict[str, Any]) -> None:
    for x, weight in ((X, W), (X.to(memory_format=LAST), W.to(memory_format=LAST))):
        expected = functional.conv2d(x, weight, BIAS, **call)
        assert close(ops.conv2d(x, weight, BIAS, **call), expected)
        assert close(ops.conv2d(x[1], weight, **call), functional.conv2d(x[1], weight, **call))


def test_same_pads_each_side_alike() -> None:
    weight = drawn(4, 6, 3, 5)
    expected = functional.conv2d(X, weight, padding="same", dilation=2)
    assert close(ops.conv2d(X, weight, padding="same", dilation=2), expected)
    with pytest.raises(UsageError, match=r"pads each side alike, and 'same' pads windows of \(3, 2\) on one side more"):
        ops.conv2d(X, W, padding="same")


@pytest.mark.parametrize("activation", ["none", "relu", "silu", "gelu"])
def test_the_activation_follows_the_bias(activation: str) -> None:
    functions = {"none": lambda x: x, "relu": torch.relu, "silu": functional.silu, "gelu": functional.gelu}
    expected = functions[activation](functional.conv2d(X, W, BIAS))
    assert close(ops.conv2d(X, W, BIAS, activation=activation), expected)


def test_the_output_is_channels_last_and_other_inputs_are_copied() -> None:
    expected = functional.conv2d(X, W)
    wide = drawn(2, 12, 9, 7).to(memory_format=LAST)
    for x in (X, X.to(memory_format=LAST), wide[:, 3:9], X.transpose(2, 3).contiguous().transpose(2, 3)):
        found = ops.conv2d(x, W)
        assert found.is_contiguous(memory_format=LAST)
        assert close(found, functional.conv2d(x, W))
    out = torch.empty(expected.shape).to(memory_format=LAST)
    assert ops.conv2d(X, W, out=out) is out
    assert close(out, expected)
    with pytest.raises(UsageError) as refused:
        ops.conv2d(X, W, out=torch.empty(expected.shape))
    assert str(refused.value) == (
        "conv2d writes channels last, and out has strides (210, 42, 6, 1); omit out, or make it with "
        "memory_format=torch.channels_last"
    )


def test_calls_that_compute_the_same_are_one_problem() -> None:
    def text(x: Tensor, weight: Tensor, **given: Any) -> str:
        attributes = {**CALL.takes_attributes, **given}
        out = torch.empty(CALL.shapes({"x": x, "weight": weight}, **attributes)["out"])
        tensors = {"x": x, "weight": weight, "out": out}
        last = {name: tensor.contiguous(memory_format=LAST) for name, tensor in tensors.items()}
        return str(CALL.problem(last, **given).text)

    whole = drawn(5, 6, 9, 7)
    assert text(X, whole, stride_h=4, stride_w=9) == text(X, whole)
    point = drawn(5, 6, 1, 1)
    assert text(X, point, dilation_h=3, dilation_w=2) == text(X, point)
    assert text(X.half(), point.half()) == "conv2d B=2 C=6 H=9 W=7 O=5 R=1 S=1 stride_h=1 stride_w=1 dtype=fp16"


def test_products_of_fp32_are_in_tf32_if_torch_says_so() -> None:
    tensors = {"x": X, "weight": W, "out": torch.empty(2, 5, 7, 6)}
    last = {name: tensor.contiguous(memory_format=LAST) for name, tensor in tensors.items()}
    before = torch.backends.cudnn.conv.fp32_precision
    try:
        for precision, expected in (("tf32", "tf32"), ("ieee", "ieee")):
            torch.backends.cudnn.conv.fp32_precision = precision
            assert CALL.problem(last)["precision"] == expected
    finally:
        torch.backends.cudnn.conv.fp32_precision = before


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"groups": 2}, "computes one group, not 2; call torch for grouped and depthwise convolutions"),
        ({"weight": W[:, :3]}, "takes filters of 6 channels, as x has, not of 3; call torch for groups"),
        ({"weight": drawn(5, 6, 12, 2)}, "a window spans at most the 9 rows of the padded image, not 12"),
        ({"stride": 0}, "the stride of rows is 1 or more, not 0"),
        ({"stride": 1.5}, "a whole number or a pair as stride, not 1.5"),
        ({"padding": -1}, "the padding of rows is 0 or more, not -1"),
        ({"padding": (1, 70)}, "a padding up to 64 and a dilation up to 64, not 70 and 1 of columns"),
        ({"padding": "same", "stride": 2}, r"or 'same' with a stride of 1, not 'same' with \(2, 2\); state the number"),
        ({"dilation": (1, 2, 3)}, r"a whole number or a pair as dilation, not \(1, 2, 3\)"),
        ({"bias": BIAS[:3]}, r"takes a tensor bias of shape \(5,\) here, not \(3,\)"),
        ({"activation": "tanh"}, "activation is one of none, relu, silu, gelu, not 'tanh'"),
        ({"x": X[0, 0]}, r"takes images x \(B, C, H, W\) or \(C, H, W\) and filters weight \(O, C, R, S\), without"),
        ({"x": X[:, :, :0]}, "without a size of 0 but B"),
        ({"x": X.half()}, "takes tensors of one dtype"),
        ({"x": [1]}, "takes tensors, and x is list"),
        ({"out": torch.empty(2, 5, 7, 5)}, r"an out of shape \(2, 5, 7, 6\) here, not \(2, 5, 7, 5\)"),
        ({"weight": torch.nn.Parameter(W)}, "has no backward pass, and a tensor requires a gradient"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(call: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as refused:
        ops.conv2d(**{"x": X, "weight": W, **call})
    assert "\n" not in str(refused.value)


def test_no_images_have_no_outputs() -> None:
    assert ops.conv2d(X[:0], W).shape == (0, 5, 7, 6)


def test_torch_traces_a_call_with_shape_and_format() -> None:
    with FakeTensorMode() as mode:
        found = ops.conv2d(mode.from_tensor(X), mode.from_tensor(W), stride=2, padding=1)
        assert (found.shape, found.stride()) == ((2, 5, 5, 4), (100, 1, 20, 5))
    compiled = torch.compile(lambda x: ops.conv2d(x, W, BIAS, 2, (1, 0)), backend="eager", fullgraph=True)
    assert close(compiled(X), functional.conv2d(X, W, BIAS, 2, (1, 0)))
