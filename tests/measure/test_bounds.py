"""Memory that a program may not reach, in Triton's interpreter: each way to reach it is an error with its line."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
import torch
from triton.runtime.errors import InterpreterError
from triton.runtime.interpreter import interpreter_builder

from tuner.measure.bounds import OutOfBounds, within

KERNELS = import_module("toys.reaching")
adds, copies = KERNELS.adds, KERNELS.copies


def run(function: Any, x: torch.Tensor, out: torch.Tensor, count: int) -> BaseException | None:
    """Return the cause of the interpreter's error."""
    with within([x, out]):
        try:
            function[(1,)](x, out, count, BLOCK=32)
        except InterpreterError as error:
            cause: BaseException | None = error.__cause__
            return cause
    return None


def test_inside_its_tensors_all_is_right() -> None:
    x, out = torch.randn(20), torch.zeros(20)
    assert run(copies, x, out, 20) is None
    assert torch.equal(out, x)


@pytest.mark.parametrize(
    ("function", "x", "out", "message"),
    [
        (copies, torch.randn(19), torch.zeros(20), "reads 1 element outside its tensors; add a mask"),
        (copies, torch.randn(20), torch.zeros(17), "writes 3 elements outside its tensors; add a mask"),
        (adds, torch.randn(20), torch.zeros(17), "writes 3 elements outside its tensors; add a mask"),
        (copies, torch.randn(40)[:19], torch.zeros(20), "reads 1 element outside its tensors; add a mask"),
        (copies, torch.randn(0), torch.zeros(20), "reads 20 elements outside its tensors; add a mask"),
    ],
)
def test_outside_is_an_error(function: Any, x: torch.Tensor, out: torch.Tensor, message: str) -> None:
    cause = run(function, x, out, 20)
    assert isinstance(cause, OutOfBounds)
    assert str(cause) == message


def test_a_tensor_with_gaps_reaches_to_its_last_element() -> None:
    x = torch.randn(2, 40)[:, :10]
    assert run(copies, x, torch.zeros(32), 32) is None


def test_the_interpreter_is_as_it_was_afterwards() -> None:
    before = interpreter_builder.create_masked_load
    run(copies, torch.randn(1), torch.zeros(1), 20)
    assert interpreter_builder.create_masked_load == before
