"""Calls of reduce: dims, ranks and strides, indices, results of nothing, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from cpu_launches import on_cpu
from torch import Tensor

from tuner import ops
from tuner.errors import UsageError
from tuner.kernels.reduce.call import CALL, axis_of, result_shape
from tuner.launching.calls import PreparedLaunches

X = torch.randn(6, 4, 10, generator=torch.Generator().manual_seed(1))


@pytest.fixture(autouse=True)
def launches() -> Iterator[PreparedLaunches]:
    with on_cpu() as launches:
        yield launches


def close(found: Tensor, expected: Tensor) -> bool:
    return bool(found.shape == expected.shape) and torch.allclose(found, expected, atol=1e-5, equal_nan=True)


STRIDES = {
    "dense": X,
    "a vector": X[0, 0],
    "a number": X[0, 0, 0],
    "a matrix": X[0],
    "columns": X[0].t(),
    "rows with gaps": X.view(24, 10)[:, :7],
    "every fourth row": X.view(24, 10)[::4],
    "gaps inside rows": X[..., ::2],
    "dims in another order": X.transpose(0, 2),
    "one row for all": X[0, 0].expand(5, 10),
    "one column": X[..., :1],
}


@pytest.mark.parametrize("name", STRIDES)
@pytest.mark.parametrize("kind", ["sum", "mean", "amax", "amin", "logsumexp"])
def test_results_are_those_of_torch_whatever_the_strides(name: str, kind: str) -> None:
    x = STRIDES[name]
    expected: Any = getattr(torch, kind)
    kind = {"amax": "max", "amin": "min"}.get(kind, kind)
    assert close(ops.reduce(x, kind), expected(x, tuple(range(x.ndim))))
    for dim in {0, -1} if x.ndim else ():
        assert close(ops.reduce(x, kind, dim=dim), expected(x, dim))


@pytest.mark.parametrize("name", STRIDES)
def test_an_index_is_that_of_the_first(name: str) -> None:
    x = (STRIDES[name] * 2).round()
    values, indices = ops.reduce(x, "max", index=True)
    assert (values, indices) == (x.max(), x.argmax())
    for dim in (0, -1) if x.ndim else ():
        values, indices = ops.reduce(x, "min", dim=dim, index=True)
        assert torch.equal(values, x.min(dim).values)
        assert torch.equal(indices, x.min(dim).indices)
    x = x.contiguous().clone()
    x.view(-1)[-1:] = float("nan")
    assert ops.reduce(x, "max", index=True)[1] == x.numel() - 1


@pytest.mark.parametrize("dim", [(0, 1), (1, 2), (-1, -2), (0, 1, 2), (0,)])
def test_several_dims_are_one_if_they_are_the_first_or_the_last(dim: tuple[int, ...]) -> None:
    assert close(ops.reduce(X, "logsumexp", dim=dim), X.logsumexp(dim))
    inside = ops.reduce(X, "max", dim=dim, index=True)[1]
    order = [each for each in range(3) if each not in {of % 3 for of in dim}]
    flat = X.permute(*order, *sorted(of % 3 for of in dim)).reshape(*(X.shape[each] for each in order), -1)
    assert torch.equal(inside, flat.argmax(-1))


def test_the_same_memory_is_the_same_problem() -> None:
    """Columns of a matrix are rows of its transpose; a dense tensor is one row if everything is reduced."""

    def problem(x: Tensor, dim: int | None) -> str:
        axis, lead = axis_of(dim, x.ndim)
        out = x.new_empty(result_shape(x, axis, lead))
        return CALL.problem({"x": x, "out": out}, kind="max", axis=axis, lead=lead).text

    assert problem(X, None) == problem(X.transpose(0, 2), None) == "reduce M=1 N=240 dtype=fp32 axis=all kind=max"
    assert problem(X.view(24, 10)[:, :7], None) == "reduce M=24 N=7 dtype=fp32 axis=all kind=max"
    long = torch.empty(2**32, device="meta")  # more elements than a row may have
    assert (
        problem(long, None) == problem(long.view(-1, 2), None) == "reduce M=4 N=1073741824 dtype=fp32 axis=all kind=max"
    )
    assert problem(X, -1) == "reduce M=24 N=10 dtype=fp32 kind=max"
    assert problem(X, 0) == "reduce M=6 N=40 dtype=fp32 axis=rows kind=max"


def test_outputs_are_written_and_returned() -> None:
    out, indices = torch.empty(6, 4), torch.empty(6, 4, dtype=torch.int64)
    assert ops.reduce(X, dim=-1, out=out) is out
    assert close(out, X.sum(-1))
    values, places = ops.reduce(X, "max", dim=-1, index=True, out=out, indices=indices)
    assert values is out
    assert places is indices
    apart = torch.empty(24, 4)[::2]
    ops.reduce(X.view(2, 12, 10)[1], dim=1, out=apart[:, 0])
    assert close(apart[:, 0], X.view(2, 12, 10)[1].sum(1))


def test_no_elements_have_the_sum_0() -> None:
    empty = torch.empty(3, 0)
    assert torch.equal(ops.reduce(empty, dim=1), torch.zeros(3))
    assert torch.equal(ops.reduce(empty, "logsumexp", dim=-1), torch.full((3,), -float("inf")))
    assert ops.reduce(empty, "mean").isnan()
    assert ops.reduce(empty, "max", dim=0).shape == (0,)
    with pytest.raises(UsageError, match=r"takes a max of at least one element, and x has shape \(3, 0\)"):
        ops.reduce(empty, "max", dim=1)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"dim": 1}, r"the first or the last dims of x, not 1 of 3; move them to the end, as in x.movedim\(1, -1\)"),
        ({"dim": (0, 2)}, "not \\(0, 2\\) of 3"),
        ({"dim": 3}, "a dim from -3 to 2 here, not 3"),
        ({"dim": ()}, "not \\(\\)"),
        ({"dim": 1.0}, "a dim, several or None, not 1.0"),
        ({"x": [1.0]}, "takes tensors, and x is list"),
        ({"x": X.to_sparse()}, "dense tensors, and x is sparse"),
        ({"kind": "median"}, "kind is one of sum, mean, max, min, logsumexp, not 'median'"),
        ({"index": True}, "an index for max and min, not for 'sum'"),
        ({"indices": torch.empty((), dtype=torch.int64)}, "writes indices if index=True"),
        ({"kind": "max", "index": True, "indices": torch.empty(())}, "indices is int64, not torch.float32"),
        ({"out": torch.empty(1)}, r"an out of shape \(\) here, not \(1,\)"),
        ({"out": X[0, 0, 0]}, "share"),
    ],
)
def test_what_does_not_fit_is_refused(arguments: dict[str, Any], error: str) -> None:
    with pytest.raises(UsageError, match=error):
        ops.reduce(**{"x": X, **arguments})
