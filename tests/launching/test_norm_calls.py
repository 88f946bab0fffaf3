"""Calls of rms_norm and layer_norm: tensors of any rank and strides, in place, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from cpu_launches import on_cpu
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.functional import layer_norm, rms_norm

from tuner import ops
from tuner.errors import UsageError
from tuner.kernels.calling import run
from tuner.kernels.rms_norm.call import CALL
from tuner.kernels.shared.rows_call import row_views
from tuner.launching.calls import PreparedLaunches

X = torch.randn(6, 4, 10, generator=torch.Generator().manual_seed(1))
WEIGHT, BIAS = X[0, 0] + 1, X[0, 1]


@pytest.fixture
def launches() -> Iterator[PreparedLaunches]:
    with on_cpu() as launches:
        yield launches


def close(found: Tensor, expected: Tensor) -> bool:
    return bool(found.shape == expected.shape and torch.allclose(found, expected, atol=1e-6))


IN_PLACE = {
    "matrices": X,
    "a vector": X[0, 0],
    "rows of one": X[..., :1],
    "rows with gaps": X.view(24, 10)[:, :7],
    "every fourth row": X.view(24, 10)[::4],
    "rows in another order": X.transpose(0, 1),
    "one row for all": X[0, 0].expand(5, 10),
}
COPIED = {"gaps inside rows": X[..., ::2], "two distances": X[:, :3], "columns": X[0].t()}


@pytest.mark.parametrize("name", [*IN_PLACE, *COPIED])
def test_rows_are_those_of_the_last_dim_whatever_the_strides(launches: PreparedLaunches, name: str) -> None:
    x = (IN_PLACE | COPIED)[name]
    weight, bias = WEIGHT[: x.shape[-1]], BIAS[: x.shape[-1]]
    assert close(ops.rms_norm(x, weight, eps=1e-3), rms_norm(x, x.shape[-1:], weight, 1e-3))
    assert close(ops.layer_norm(x, weight, bias), layer_norm(x, x.shape[-1:], weight, bias))
    assert (row_views({"x": x, "out": torch.empty_like(x)}) is None) == (name in COPIED)


def test_a_residual_is_added_and_returned_rounded(launches: PreparedLaunches) -> None:
    x, residual = X.bfloat16(), (100 * X.flip(0)).bfloat16()
    out, total = ops.rms_norm(x, None, residual)
    assert torch.equal(total, x + residual)
    assert close(out.float(), rms_norm((x + residual).double(), (10,), eps=1e-6).bfloat16().float())


def test_outputs_may_be_inputs(launches: PreparedLaunches) -> None:
    x, residual = X.clone(), X.flip(0)
    out, total = ops.rms_norm(x, WEIGHT, residual, out=x, residual_out=residual)
    assert (out.data_ptr(), total.data_ptr()) == (x.data_ptr(), residual.data_ptr())
    assert close(total, X + X.flip(0))
    assert close(out, rms_norm(X + X.flip(0), (10,), WEIGHT, 1e-6))
    y = X.clone()
    assert close(ops.layer_norm(y, out=y), layer_norm(X, (10,)))
    with pytest.raises(UsageError, match="residual_out"):
        ops.rms_norm(x, None, residual, residual_out=x)


def test_statistics_are_those_of_rows(launches: PreparedLaunches) -> None:
    expected = torch.native_layer_norm(X, (10,), None, None, 1e-5)
    out, mean, rstd = ops.layer_norm(X, stats=True)
    assert close(out, expected[0])
    assert close(mean, expected[1][..., 0])
    assert close(rstd, expected[2][..., 0])
    given = torch.empty(6, 4)
    with pytest.raises(UsageError, match="layer_norm writes each output to memory of its own, and mean shares"):
        ops.layer_norm(X, stats=True, mean=given, rstd=given)
    with pytest.raises(UsageError, match="layer_norm writes each output to memory of its own, and mean shares"):
        torch.ops.tuner.layer_norm(X, None, None, torch.empty_like(X), given, given, 1e-5)
    assert ops.layer_norm(X, stats=True, mean=given)[1] is given
    assert close(given, mean)
    assert close(ops.layer_norm(X[0, 0], stats=True)[1], X[0, 0].mean())


def test_rows_without_elements_have_no_mean(launches: PreparedLaunches) -> None:
    out, mean, rstd = ops.layer_norm(torch.empty(3, 0), stats=True)
    assert out.shape == (3, 0)
    assert bool(mean.isnan().all() and rstd.isnan().all())
    assert ops.rms_norm(torch.empty(0, 5)).shape == (0, 5)


REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: ops.rms_norm(torch.tensor(1.0)), "normalises the last dim of x, and x has none"),
    (lambda: ops.rms_norm(X, WEIGHT[:5]), r"takes a tensor weight of shape \(10,\) here, not \(5,\)"),
    (lambda: ops.rms_norm(X, None, X[0]), r"takes a tensor residual of shape \(6, 4, 10\) here, not \(4, 10\)"),
    (
        lambda: ops.rms_norm(X, residual_out=X),  # type: ignore[call-overload]
        "writes residual_out if there is a residual, and there is none",
    ),
    (
        lambda: ops.layer_norm(X, mean=torch.empty(6, 4)),  # type: ignore[call-overload]
        "writes mean and rstd with stats=True, not False",
    ),
    (lambda: ops.layer_norm(X, stats=True, rstd=torch.empty(6)), r"writes to an rstd of shape \(6, 4\) here"),
    (lambda: ops.layer_norm(X, stats=True, rstd=torch.empty(6, 4).half()), "layer_norm's rstd is fp32"),
    (lambda: ops.rms_norm(X, eps=torch.tensor(1e-6)), r"eps is a number, not torch.Tensor; convert it with float\(\)"),
    (lambda: ops.rms_norm(X, eps=[1e-6]), "eps is a number, not list"),  # type: ignore[call-overload]
    (lambda: ops.layer_norm(X.double()), "layer_norm takes bf16, fp16, fp32, and x is torch.float64"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_what_does_not_fit_is_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call()


def test_copies_that_the_kernel_does_not_take_are_refused(launches: PreparedLaunches) -> None:
    call = replace(CALL, viewed=lambda tensors: None)
    with pytest.raises(
        UsageError, match=r"takes no tensors of these shapes: x \(6, 4, 10\), out \(6, 4, 10\); reshape"
    ):
        run(call, {"x": X, "out": torch.empty_like(X)}, scalars={"eps": 1e-6})


def test_a_tensor_without_memory_is_refused_after_one_with_memory(launches: PreparedLaunches) -> None:
    freed = WEIGHT.clone()
    ops.rms_norm(X, freed)
    freed.untyped_storage().resize_(0)
    with pytest.raises(UsageError, match="reads and writes memory, and weight has none"):
        ops.rms_norm(X, freed)
    with pytest.raises(UsageError, match="x is on cpu but weight is on meta"):
        ops.rms_norm(X, WEIGHT.to("meta"))


def test_a_mode_that_watches_ops_sees_the_call(launches: PreparedLaunches) -> None:
    traced = make_fx(lambda x: ops.layer_norm(x, stats=True)[1])(X)
    assert [node.target for node in traced.graph.nodes].count(torch.ops.tuner.layer_norm.default) == 1
    assert close(traced(X.flip(0)), X.flip(0).mean(-1))


def test_tensors_without_memory_give_results_of_their_shape() -> None:
    with FakeTensorMode():
        x, weight = (torch.empty(size, dtype=torch.bfloat16, device="cuda:1") for size in ((2, 3, 8), (8,)))
        out, total = ops.rms_norm(x, weight, x)
        normalised, mean, _ = ops.layer_norm(x, stats=True)
    assert out.shape == total.shape == normalised.shape == x.shape
    assert (mean.shape, mean.dtype) == ((2, 3), torch.float32)
