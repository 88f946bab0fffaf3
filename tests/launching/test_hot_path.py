"""Work of a repeated call before its launch, counted, and what its key tells apart."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import FrameType
from typing import Any

import numpy
import pytest
import torch
from cpu_launches import on_cpu
from torch import Tensor
from torch.nn.functional import layer_norm

from tuner import catalog, ops
from tuner.client import Client
from tuner.errors import UsageError
from tuner.kernels.calling import OpCall, PreparedLaunch, prepare, run
from tuner.kernels.hot_path import source
from tuner.kernels.spec import Problem
from tuner.launching import calls
from tuner.launching.calls import PreparedLaunches


@pytest.fixture
def launches() -> Iterator[PreparedLaunches]:
    with on_cpu() as installed:
        yield installed


def drawn(*size: int) -> Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(sum(size)))


X, Y, OUT, VECTOR, OF_ROWS = drawn(8, 8), drawn(8, 8), torch.empty(8, 8), drawn(8), torch.empty(8)
HALF, HALF_OUT, BYTES, SCALE = X.bfloat16(), OUT.bfloat16(), X.to(torch.float8_e4m3fn), torch.ones(1)
HEADS, HEADS_OUT = drawn(1, 2, 4, 8).bfloat16(), torch.empty(1, 2, 4, 8, dtype=torch.bfloat16)
COLUMNS, IMAGE, POOLED = BYTES.t(), drawn(1, 2, 4, 4), torch.empty(1, 2, 2, 2)
LAST, FILTERS = IMAGE.bfloat16().to(memory_format=torch.channels_last), drawn(2, 2, 1, 1).bfloat16()
LAST_OUT = torch.empty_like(LAST)
ALWAYS = ["launch", "is_dynamo_compiling", "_len_torch_dispatch_stack", "get", "ran"]
EACH_TENSOR = ["data_ptr", "stride", "get_device", "is_neg"]
CACHED = ["found", "is_dynamo_compiling"]
"""Functions that look up what an argument means."""
REPEATED: dict[str, tuple[Callable[[], object], int, list[str]]] = {
    "add": (lambda: ops.add(X, Y, out=OUT), 3, []),
    "attention": (lambda: ops.attention(HEADS, HEADS, HEADS, HEADS_OUT, causal=True), 4, []),
    "avg_pool2d": (lambda: ops.avg_pool2d(IMAGE, 2, out=POOLED), 2, ["image_of", *CACHED]),
    "conv2d": (lambda: ops.conv2d(LAST, FILTERS, HALF[0, :2], out=LAST_OUT), 4, [*CACHED, "<lambda>"]),
    "copy_column": (
        lambda: ops.copy_column(X, 3, out=OF_ROWS), 2,
        ["_column", "select", "is_neg", "is_pinned", "is_conj", "is_conj"],
    ),
    "gelu": (lambda: ops.gelu(X, "tanh", out=OUT), 2, []),
    "gemm": (lambda: ops.gemm(HALF, HALF, HALF_OUT, bias=HALF[0]), 4, ["<lambda>"]),
    "layer_norm": (lambda: ops.layer_norm(X, VECTOR, VECTOR, out=OUT), 4, []),
    "max_pool2d": (lambda: ops.max_pool2d(IMAGE, 2, out=POOLED), 2, ["image_of", *CACHED]),
    "reduce": (lambda: ops.reduce(X, dim=1, out=OF_ROWS), 2, ["stride", *CACHED]),
    "rms_norm": (lambda: ops.rms_norm(X, VECTOR, Y, out=OUT, residual_out=Y), 5, []),
    "scaled_gemm": (lambda: ops.scaled_gemm(BYTES, COLUMNS, SCALE, SCALE, HALF_OUT), 5, []),
    "silu": (lambda: ops.silu(X, out=OUT), 2, []),
    "silu_mul": (lambda: ops.silu_mul(X, Y, out=OUT), 3, []),
    "softmax": (lambda: ops.softmax(X, out=OUT), 2, []),
    "transpose": (lambda: ops.transpose(X, out=OUT), 2, ["is_conj", "is_conj"]),
}  # fmt: skip
"""A call of each op, the number of its tensors, and the functions that it runs beside `ALWAYS` and `EACH_TENSOR`."""


def functions_of(call: Callable[[], object]) -> Counter[str]:
    """Return the functions that run inside a call, of Python and in C, by name."""
    found: list[str] = []

    def note(frame: FrameType, event: str, called: Any) -> None:
        if event in ("call", "c_call"):
            found.append(frame.f_code.co_name if event == "call" else called.__name__)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return Counter(found[1:-1])  # without the call itself and `setprofile`


def test_each_op_has_a_repeated_call() -> None:
    assert REPEATED.keys() == {op for op in catalog.shipped() if catalog.call_module(op)}


@pytest.mark.parametrize("op", REPEATED)
def test_a_repeated_call_runs_no_function_that_it_does_not_need(op: str, launches: PreparedLaunches) -> None:
    """Each costs the host about 0.05 us."""

    def ran(at: tuple[int, ...]) -> None:
        pass

    call, tensors, others = REPEATED[op]
    launches.launch_of = lambda *_: ran
    call()
    assert functions_of(call) == Counter([op, *ALWAYS, *(tensors * EACH_TENSOR), *others])


class TestKey:
    def test_optional_tensors_of_one_shape_are_told_apart(self, launches: PreparedLaunches) -> None:
        for _ in range(2):
            weighted, shifted = ops.layer_norm(X, VECTOR), ops.layer_norm(X, None, VECTOR)
            assert torch.allclose(weighted, layer_norm(X, (8,), VECTOR), atol=1e-6)
            assert torch.allclose(shifted, layer_norm(X, (8,), None, VECTOR), atol=1e-6)
        assert len(launches.prepared) == 2

    def test_inputs_in_one_memory_are_told_apart_from_others(self, launches: PreparedLaunches) -> None:
        """A launch may be given a view of an input, which it finds by its address."""
        for _ in range(2):
            assert torch.equal(ops.add(X, X), X + X)
            assert torch.equal(ops.add(X, Y), X + Y)
        assert len(launches.prepared) == 2

    def test_attributes_scalars_and_the_setting_of_torch_are_told_apart(self, launches: PreparedLaunches) -> None:
        made = []
        before = torch.get_float32_matmul_precision()
        try:
            for precision in ("highest", "high"):
                torch.set_float32_matmul_precision(precision)
                for activation in ("none", "silu"):
                    ops.gemm(X, Y, activation=activation)
                    made.append(len(launches.prepared))
        finally:
            torch.set_float32_matmul_precision(before)
        for eps in (1e-5, 1e-3, 1e-5):
            assert torch.allclose(ops.layer_norm(X, eps=eps), layer_norm(X, (8,), eps=eps), atol=1e-6)
            made.append(len(launches.prepared))
        assert made == [1, 2, 3, 4, 5, 6, 6]

    def test_zeros_of_either_sign_are_two_scalars(self, launches: PreparedLaunches) -> None:
        prepared: list[str] = []

        def launch_of(client: Client, call: OpCall, problem: Problem, operands: Mapping[str, Any]) -> PreparedLaunch:
            prepared.append(str(operands["eps"]))
            return lambda at: None

        launches.launch_of = launch_of
        for eps in (0.0, -0.0, 0, 0.0, -0.0):
            ops.layer_norm(X, eps=eps)
        assert [*dict.fromkeys(prepared)] == ["0.0", "-0.0"]
        with pytest.raises(UsageError, match=r"eps is a number, not numpy\.ndarray"):
            ops.layer_norm(X, eps=numpy.ones(2))  # type: ignore[call-overload]

    def test_two_calls_of_one_kernel_share_no_launch(self, launches: PreparedLaunches) -> None:
        call = calls.load("silu")
        other = replace(call, function=len)
        run(call, {"x": X, "out": OUT})
        run(other, {"x": X, "out": OUT})
        assert len(launches.prepared) == 2


def test_what_another_thread_has_just_prepared_is_not_prepared_again(launches: PreparedLaunches) -> None:
    ops.softmax(X, out=OUT)
    ((key, found),) = launches.prepared.items()
    assert prepare(calls.load("softmax"), key, X, OUT) is found
    assert len(launches.prepared) == 1


def test_a_tensor_that_is_needed_is_refused_if_it_is_none(launches: PreparedLaunches) -> None:
    with pytest.raises(UsageError, match=r"gemm takes tensors, and b is NoneType; convert it with torch\.as_tensor"):
        ops.gemm(X, None, OUT)
    with pytest.raises(UsageError, match="add takes tensors, and y is NoneType"):
        ops.add(X, None)


def test_only_ops_that_read_the_host_ask_for_pinned_memory_and_hold_it() -> None:
    on_host = [op for op in REPEATED if "is_pinned" in source(calls.load(op))]
    assert on_host == ["copy_column"]
    assert "if h0 == -1:\n            hold(t0, t1.device)" in source(calls.load("copy_column"))


def test_only_ops_that_take_complex_numbers_ask_for_conjugate_views() -> None:
    assert [op for op in REPEATED if "is_conj" in source(calls.load(op))] == ["copy_column", "transpose"]
