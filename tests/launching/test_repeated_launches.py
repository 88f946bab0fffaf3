"""`tuner.launch` after a launch on tensors of a kind: what must not be taken for a repetition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy
import pytest
import torch
from helpers import toy
from torch import Tensor

from tuner import catalog
from tuner.client import Client
from tuner.errors import UsageError
from tuner.kernels.spec import Kernel, Problem
from tuner.launching.launch import Launches, Ready

X, OUT = torch.ones(3, 8), torch.empty(3, 8)


class Subclass(Tensor):  # type: ignore[misc]
    pass


def test_zeros_of_either_sign_are_two_scalars() -> None:
    prepared: list[str] = []

    def ready(client: Client, kernel: Kernel, problem: Problem, operands: Mapping[str, Any]) -> Ready:
        prepared.append(str(operands["eps"]))
        return Ready(lambda at: None)

    launches = Launches(Client(), ready_of=ready, runs_on="cpu")
    for eps in (0.0, -0.0, 0.0, -0.0):
        launches.launch("rms_norm", x=X, out=OUT, weight=False, eps=eps)
    assert prepared == ["0.0", "-0.0"]
    with pytest.raises(UsageError, match=r"eps is a number, not numpy\.ndarray"):
        launches.launch("rms_norm", x=X, out=OUT, weight=False, eps=numpy.ones(2))


def test_a_launch_that_raises_is_not_repeated() -> None:
    """A tensor of another type takes the cold path."""
    launched: list[Tensor] = []

    def refused(given: Mapping[str, Tensor]) -> None:
        launched.append(given["x"])
        raise RuntimeError("the card refused it")

    launches = Launches(Client(), ready_of=lambda *_: Ready(None, refused), runs_on="cpu")
    double, x = catalog.resolve(toy("double")), torch.ones(96)
    for given in (x, x.as_subclass(Subclass)):
        launched.clear()
        with pytest.raises(RuntimeError, match="the card refused it") as raised:
            launches.launch(double, x=given, out=torch.zeros(96))
        assert len(launched) == 1
        assert raised.value.__context__ is None
