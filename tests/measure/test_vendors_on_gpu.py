"""Vendors on a real card: each op's own, torch.compile, and the libraries that are installed."""

from __future__ import annotations

import pytest
from helpers import OURS, able, problems

from tuner import catalog
from tuner.kernels.spec import Kernel, Limits, Problem
from tuner.kernels.vendors import COMPILED, vendor_names
from tuner.measure.messages import Rounds, Task
from tuner.measure.worker import Worker
from tuner.records import NOT_INSTALLED, POLICIES, Comparison

pytestmark = pytest.mark.gpu


def limits() -> Limits:
    from tuner.measure.device import describe

    return describe(0).limits


def on_device(kernel: Kernel, problem: Problem) -> bool:
    """Return whether no tensor is on the host, from which compiled code may not copy."""
    return all(operand.place == "device" for operand in kernel.operands(problem).values())


@pytest.mark.parametrize("policy", ["cold", "graph"])
@pytest.mark.parametrize("op", OURS)
def test_torch_compile_is_right_and_timed_beside_each_ops_own_vendor(op: str, policy: str) -> None:
    card, kernel = limits(), catalog.load(op)
    if not able(op, card):
        pytest.skip(f"{op} does not run on this card")
    *_, problem = (each for each in problems(op) if on_device(kernel, each))
    task = Task(op, problem, card, POLICIES[policy], vendors=vendor_names(kernel), each_vendor=True)
    config = kernel.default_config(problem, card)
    found = Worker(task, lambda message: None).compare(Rounds((config,), 5, 10.0, seed=1))
    assert isinstance(found, Comparison)
    assert {kernel.vendor_name, COMPILED} <= found.vendors.keys(), found.left_out
    assert set(found.vendors.values()) <= set(found.timed)
    faults = {
        name: why
        for name, why in found.left_out.items()
        if not why.startswith(NOT_INSTALLED) and "liger" not in why and "flashinfer" not in why
    }
    assert faults == {}
    assert found.vendors.keys() | found.left_out.keys() == set(vendor_names(kernel))


def test_many_problems_reach_no_limit_of_recompiles() -> None:
    card, kernel = limits(), catalog.load("softmax")
    for size in range(1, 14):
        problem = kernel.signature.problem({"M": size, "N": 64 * size})
        task = Task("softmax", problem, card, vendors=(COMPILED,))
        config = kernel.default_config(problem, card)
        found = Worker(task, lambda message: None).compare(Rounds((config,), 2, 5.0, seed=1))
        assert isinstance(found, Comparison)
        assert (found.vendor, found.left_out) == (COMPILED, {})
