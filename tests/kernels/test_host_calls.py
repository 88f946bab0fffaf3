"""Operands in the host's memory, and calls on the host in place of launches: the rules of a kernel file."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from helpers import H200, toy

from tuner import catalog
from tuner.errors import KernelFault
from tuner.kernels.launch import Place
from tuner.kernels.spec import HostCall, Kernel, Operand
from tuner.measure.compile import compile_launches
from tuner.measure.interpret import interpret
from tuner.measure.stand_ins import stand_in

DOUBLE = catalog.resolve(toy("double"))
PROBLEM = DOUBLE.signature.problem({"N": 100})
CONFIG = DOUBLE.default_config(PROBLEM, H200.limits)


def nothing(stream: int, x: int) -> None:
    pass


WRONG: dict[str, Any] = {"fn": ("copy", ()), "args": (nothing, [1]), "captures": (nothing, (), 1)}


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (
            lambda: Operand((3,), "fp32", place="disk"),  # type: ignore[arg-type]
            "place is device, pinned, pageable, not 'disk'; replace it",
        ),
        (
            lambda: Operand((3,), "fp32", "out", place="pinned"),
            "what is written is on the device, and the role out has place 'pinned'; let the caller copy it",
        ),
        (lambda: HostCall(*WRONG["fn"]), "HostCall: fn is a function, not 'copy'; define it"),
        (lambda: HostCall(*WRONG["args"]), r"HostCall: args is a tuple of arguments, not \[1\]"),
        (lambda: HostCall(*WRONG["captures"]), "HostCall: captures is True or False, not 1; replace it"),
    ],
)
def test_mistakes_are_faults(wrong: Callable[[], Any], text: str) -> None:
    with pytest.raises(KernelFault, match=text):
        wrong()


def test_a_call_gets_the_stream_and_addresses_and_keeps_its_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=7))
    got: list[tuple[int, ...]] = []
    x = torch.ones(3)
    address, held = x.data_ptr(), weakref.ref(x)
    call = HostCall(lambda *args: got.append(args), (x, 5))
    call()
    again = call.repeated()
    del x, call
    assert held() is not None
    again()
    assert got == [(7, address, 5)] * 2


def called() -> Kernel:
    """Return a kernel whose launch is a call on the host."""
    return replace(DOUBLE, launch=lambda problem, config, tensors: (HostCall(nothing, (tensors["x"],)),))


def test_there_is_nothing_to_compile_or_to_interpret() -> None:
    kernel = called()
    assert compile_launches(kernel, PROBLEM, CONFIG, H200.limits) == []
    found = interpret(kernel, PROBLEM, CONFIG, H200.limits)
    assert (found.outcome, found.text[:19]) == ("skipped", "a call on the host ")


@pytest.mark.parametrize("as_tensor", [False, True])
@pytest.mark.parametrize(("place", "kind"), [("device", "cuda"), ("pinned", "cpu"), ("pageable", "cpu")])
def test_a_stand_in_says_where_it_is(place: Place, kind: str, as_tensor: bool) -> None:
    made: Any = stand_in(Operand((4, 6), "fp16", place=place))
    if as_tensor:
        made = made[1:, :3].t()
    assert (made.device.type, made.is_cuda, made.is_pinned()) == (kind, kind == "cuda", place == "pinned")
    if isinstance(made, torch.Tensor):
        assert torch.empty_like(made).device.type == kind
