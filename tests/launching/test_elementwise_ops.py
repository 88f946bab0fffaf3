"""Calls of elementwise ops without a GPU: which tensors are rows, which are copied, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from cpu_launches import on_cpu
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import gelu, silu

from tuner import ops
from tuner.errors import UsageError
from tuner.launching import calls
from tuner.launching.calls import PreparedLaunches


@pytest.fixture
def launches() -> Iterator[PreparedLaunches]:
    with on_cpu() as prepared:
        yield prepared


def drawn(*size: int) -> Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(sum(size)))


def text(op: str, **tensors: Tensor) -> str | None:
    """Return the problem of a call without copies, after its op; None if copies are made."""
    call = calls.load(op)
    operands = call.operands(tensors)
    return None if operands is None else call.problem_of(operands).text.partition(" ")[2].replace(" dtype=fp32", "")


VIEWS = {
    "a matrix": (drawn(3, 5), "N=15 M=1"),
    "one number": (drawn(1)[0], "N=1 M=1"),
    "any rank": (drawn(2, 3, 4, 5), "N=120 M=1"),
    "transposed": (drawn(3, 5).t(), "N=15 M=1"),
    "channels last": (drawn(2, 3, 4, 5).to(memory_format=torch.channels_last), "N=120 M=1"),
    "part of each row": (drawn(3, 9)[:, :5], "N=5 M=3"),
    "rows of several dims": (drawn(2, 3, 9)[..., :5], "N=5 M=6"),
    "every second row": (drawn(6, 5)[::2], "N=5 M=3"),
    "part of a batch": (drawn(2, 3, 5)[:, :2], "N=10 M=2"),
    "a column": (drawn(7, 3)[:, 1], "N=1 M=7"),
    "every second column": (drawn(3, 10)[:, ::2], "N=1 M=15"),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_tensor_of_any_shape_is_rows_of_its_memory(name: str, launches: PreparedLaunches) -> None:
    x, expected = VIEWS[name]
    assert text("silu", x=x, out=torch.empty_like(x)) == expected
    assert torch.allclose(ops.silu(x), silu(x), atol=1e-6)
    assert len(launches.prepared) == 1  # by the path without copies


def test_gaps_in_more_than_one_dim_and_another_order_of_dims_are_copied(launches: PreparedLaunches) -> None:
    x = drawn(4, 6, 9)[::2, :3, :5]
    assert text("silu", x=x, out=torch.empty(2, 3, 5)) is None
    y = drawn(5, 3).t()
    assert text("add", x=drawn(3, 5), y=y, out=torch.empty(3, 5)) is None
    assert torch.allclose(ops.silu(x), silu(x), atol=1e-6)
    assert torch.equal(ops.add(drawn(3, 5), y), drawn(3, 5) + y)
    out = torch.empty(9, 5).t()[:, ::3]
    ops.gelu(drawn(5, 3), approximate="tanh", out=out)
    assert torch.allclose(out, gelu(drawn(5, 3), approximate="tanh"), atol=1e-6)


@pytest.mark.parametrize(
    ("op", "inputs", "size", "expected"),
    [
        ("silu", ("x",), (2**20, 4096), "N=1073741824 M=4"),
        ("silu_mul", ("gate", "up"), (2**20, 4096), "M=1048576 N=4096"),
        ("silu_mul", ("gate",), (2**14, 2**16, 2), "M=1073741824 N=1 packed=True"),
        ("silu", ("x",), (3 * 2**31,), "N=1610612736 M=4"),
        ("silu", ("x",), (2, 2**30, 2), "N=1073741824 M=4"),
        ("silu_mul", ("gate", "up"), (2**32,), "M=4 N=1073741824"),
        ("silu_mul", ("gate",), (2**16, 2**16, 2), None),
        ("rms_norm", ("x",), (2**16, 2**16, 1), None),
        ("layer_norm", ("x",), (2**16, 2**15, 3), None),
    ],
)
def test_tensors_without_gaps_are_never_copied(
    op: str, inputs: tuple[str, ...], size: tuple[int, ...], expected: str | None
) -> None:
    """A copy of such a tensor would be copied again. It has several rows if one is too long."""
    given = {name: torch.empty(size, device="meta") for name in inputs}
    width = size[-1] // 2 if inputs == ("gate",) else size[-1]
    tensors = {**given, "out": torch.empty((*size[:-1], width), device="meta")}
    if expected is not None:
        assert text(op, **tensors) == expected
        return
    with pytest.raises(UsageError, match=f"{op}: M is "):
        text(op, **tensors)


def test_a_row_that_is_repeated_is_not_copied(launches: PreparedLaunches) -> None:
    x, row = drawn(4, 6), drawn(6)
    assert text("add", x=x, y=row.expand(4, 6), out=torch.empty(4, 6)) == "N=6 M=4"
    assert torch.equal(ops.add(x, row.expand(4, 6)), x + row)
    assert torch.equal(ops.add(row.expand(4, 6), x), x + row)


def test_results_keep_the_order_of_dims(launches: PreparedLaunches) -> None:
    x = drawn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert ops.gelu(x).is_contiguous(memory_format=torch.channels_last)
    assert torch.allclose(ops.gelu(x), gelu(x), atol=1e-6)


def test_an_input_may_be_out(launches: PreparedLaunches) -> None:
    x, y = drawn(3, 8), drawn(3, 8)
    expected = x + y
    assert ops.add(x, y, out=y) is y
    assert torch.equal(y, expected)
    expected = silu(x[:, :4]) * x[:, 4:]
    both = x.clone()
    ops.silu_mul(x[:, :4], x[:, 4:], out=x[:, :4])
    assert torch.allclose(x[:, :4], expected, atol=1e-6)
    ops.silu_mul(both, out=both[:, :4])
    assert torch.allclose(both[:, :4], expected, atol=1e-6)
    with pytest.raises(UsageError, match="shares memory"):
        ops.silu_mul(both, out=both[:, 4:])


def test_an_input_that_overlaps_out_is_refused(launches: PreparedLaunches) -> None:
    x = drawn(20)
    with pytest.raises(UsageError, match="silu"):
        ops.silu(x[:10], out=x[1:11])


PACKED = {
    "a matrix": (drawn(3, 10), "M=3 N=5 packed=True"),
    "one token": (drawn(10), "M=1 N=5 packed=True"),
    "any rank": (drawn(2, 3, 10), "M=6 N=5 packed=True"),
    "rows with gaps": (drawn(3, 16)[:, :10], "M=3 N=5 packed=True"),
    "pairs": (drawn(7, 2), "M=7 N=1 packed=True"),
}


class TestSiluMul:
    @pytest.mark.parametrize("name", PACKED)
    def test_halves_of_a_tensor_are_read_where_they_are(self, name: str, launches: PreparedLaunches) -> None:
        both, expected = PACKED[name]
        gate, up = both.chunk(2, dim=-1)
        assert text("silu_mul", gate=both, out=torch.empty(gate.shape)) == expected
        assert torch.allclose(ops.silu_mul(both), silu(gate) * up, atol=1e-6)
        assert torch.allclose(ops.silu_mul(gate, up), silu(gate) * up, atol=1e-6)
        assert len(launches.prepared) == 2

    def test_tokens_and_width_are_those_of_the_shape(self) -> None:
        gate = drawn(2, 3, 5)
        assert text("silu_mul", gate=gate, up=gate, out=torch.empty(2, 3, 5)) == "M=6 N=5"
        halves = drawn(6, 10).chunk(2, dim=-1)
        assert text("silu_mul", gate=halves[0], up=halves[1], out=torch.empty(6, 5)) == "M=6 N=5"

    def test_a_gate_in_another_order_is_copied(self, launches: PreparedLaunches) -> None:
        both = drawn(10, 3).t()
        gate, up = both.chunk(2, dim=-1)
        assert text("silu_mul", gate=both, out=torch.empty(3, 5)) is None
        assert torch.allclose(ops.silu_mul(both), silu(gate) * up, atol=1e-6)

    @pytest.mark.parametrize(
        ("inputs", "message"),
        [
            ((drawn(3, 5),), r"takes a gate whose last dim holds gate and up, and gate has shape \(3, 5\); give it"),
            ((drawn(3, 5), drawn(3, 4)), r"takes a tensor up of shape \(3, 5\) here, not \(3, 4\); reshape it"),
            ((drawn(1)[0],), r"gate has shape \(\); give it an even last dim"),
        ],
    )
    def test_shapes_that_do_not_fit_are_refused(self, inputs: tuple[Tensor, ...], message: str) -> None:
        with pytest.raises(UsageError, match=message):
            ops.silu_mul(*inputs)


@pytest.mark.parametrize("size", [(0,), (3, 0), (0, 4)])
def test_a_tensor_without_elements_has_a_result_without_any(size: tuple[int, ...], launches: PreparedLaunches) -> None:
    x = torch.empty(size)
    assert ops.silu(x).shape == ops.gelu(x).shape == ops.add(x, x).shape == ops.silu_mul(x, x).shape == size
    assert ops.silu_mul(torch.empty(3, 0)).shape == (3, 0)
    assert launches.prepared == {}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: ops.add(x, x[0]), r"add takes a tensor y of shape \(3, 4\) here, not \(4,\); reshape it"),
        (lambda x: ops.gelu(x, "exact"), "gelu's approximate is one of none, tanh, not 'exact'"),
        (lambda x: ops.gelu(x, ["tanh"]), r"gelu's approximate is one of none, tanh, not \['tanh'\]"),  # type: ignore[arg-type]
        (lambda x: ops.silu(x.int()), "silu takes bf16, fp16, fp32, and x is torch.int32"),
        (lambda x: ops.silu(x.requires_grad_()), "tuner.ops has no backward pass"),
        (lambda x: ops.silu(3), "silu takes tensors, and x is int"),
        (lambda x: ops.silu_mul(3), "silu_mul takes tensors, and gate is int"),
    ],
)
def test_a_call_that_does_not_fit_is_refused(call: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call(drawn(3, 4))


def test_fake_tensors_have_results_of_their_shape() -> None:
    with FakeTensorMode():
        x = torch.empty(2, 3, 8, dtype=torch.bfloat16, device="cuda")
        results = [ops.add(x, x), ops.gelu(x, "tanh"), ops.silu(x), ops.silu_mul(x, x), ops.silu_mul(x)]
    assert [tuple(result.shape) for result in results] == [*[(2, 3, 8)] * 4, (2, 3, 4)]
    assert {(result.dtype, str(result.device)) for result in results} == {(torch.bfloat16, "cuda:0")}


def test_torch_compiles_them_into_one_graph(launches: PreparedLaunches) -> None:
    def model(x: Tensor) -> Tensor:
        return ops.silu_mul(ops.gelu(ops.add(x, ops.silu(x)), approximate="tanh"))

    x = drawn(3, 8)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    assert torch.allclose(compiled(x), model(x), atol=1e-6)
