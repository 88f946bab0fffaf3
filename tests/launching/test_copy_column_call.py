"""Calls of copy_column without a GPU: columns, shapes and memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tuner import ops
from tuner.errors import UsageError
from tuner.kernels.copy_column.call import CALL, values

X = torch.arange(15.0).reshape(5, 3)
REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: ops.copy_column(X, 3), "takes the index of a column of x, and 3 is none of 3; correct it"),
    (lambda: ops.copy_column(X, None), "the index of a column of x, and None is none of 3"),  # type: ignore[arg-type]
    (lambda: ops.copy_column(X[0]), r"takes matrices, and x has shape \(3,\)"),
    (lambda: ops.copy_column(X), "copies to a GPU, and torch finds none here; call torch instead"),
    (lambda: ops.copy_column(X, out=torch.empty(5)), "runs on a GPU, and its tensors are on cpu"),
    (lambda: ops.copy_column(X, out=torch.empty(4, device="meta")), r"out of shape \(5,\) here, not \(4,\)"),
    (lambda: ops.copy_column(X, out=torch.empty(5, dtype=torch.int32)), "one dtype, and x is torch.float32 but out is"),
]


@pytest.mark.parametrize(("call", "text"), REFUSED)
def test_what_does_not_fit_is_refused(call: Callable[[], object], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        call()


def test_the_problem_is_the_stride_and_the_memory() -> None:
    on_device = X.to("meta")
    assert values({"x": on_device[:, 1]}) == {"M": 5, "N": 3, "dtype": torch.float32, "memory": "device"}
    assert values({"x": X[:, -1]}) == {"M": 5, "N": 3, "dtype": torch.float32, "memory": "pageable"}
    assert values({"x": on_device[:1, 1]})["N"] == 1


def test_elements_of_other_dtypes_move_as_integers_and_repeated_rows_are_copied() -> None:
    x = torch.zeros(5, 3, dtype=torch.complex64, device="meta")
    problem = CALL.problem({"x": x[:, 2], "out": torch.empty(5, dtype=torch.complex64, device="meta")})
    assert problem.text == "copy_column M=5 N=3 dtype=int64"
    row = X[0].expand(5, 3)
    assert CALL.operands({"x": row[:, 1], "out": torch.empty(5, device="meta")}) is None


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_torch_traces_a_column_of_each_memory(device: str) -> None:
    with FakeTensorMode():
        x, out = torch.empty(5, 3, device=device), torch.empty(5, device="cuda")
        assert ops.copy_column(x, 1, out=out) is out


@pytest.mark.parametrize(("name", "is_taken"), [("x", True), ("out", False)])
def test_out_is_copied_if_its_rows_are_too_far_apart_for_the_driver(name: str, is_taken: bool) -> None:
    column = torch.empty_strided((2,), (2**29,), dtype=torch.float32, device="meta")
    assert CALL.accepts(name, column) == is_taken
    assert CALL.accepts(name, column[:1])
