"""Wrong configs that are five times as fast as right ones, beside right and wrong vendors and references."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from cpu_worker import InProcess, StatedClock
from helpers import H200, toy

from tuner import catalog
from tuner.errors import KernelFault
from tuner.kernels.spec import Problem
from tuner.measure.messages import Task
from tuner.measure.worker import Worker
from tuner.search import search
from tuner.search.space import feasible

KERNEL = catalog.resolve(toy("planted"))
DEFAULT = KERNEL.signature.config({"BLOCK": 64, "FAULT": "none", "num_warps": 4, "num_stages": 1})


def problem(seed: int, **given: object) -> Problem:
    """Return a problem of a size and a dtype by seed."""
    dice = random.Random(seed)
    sizes = {"M": dice.choice((5, 24, 129)), "N": dice.choice((16, 40, 127)), "dtype": dice.choice(("fp16", "bf16"))}
    return KERNEL.signature.problem(sizes | given)


def in_process(asked: Problem, seed: int) -> InProcess:
    task = Task(toy("planted"), asked, H200.limits)
    return InProcess(Worker(task, lambda message: None, device="cpu", clock=StatedClock(seed)), seed)


@pytest.fixture
def without_vendor(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function that takes the vendor away."""
    return lambda: monkeypatch.setattr(catalog, "resolve", lambda reference: replace(KERNEL, vendor=None))


@pytest.mark.parametrize("block", range(5))
def test_a_wrong_config_is_never_an_answer(block: int, without_vendor: Callable[[], None]) -> None:
    """20 searches: vendors that are exact, vendors that are off by as much as rounding, and none."""
    random.seed(block)
    kind = ("right", "coarse", "right", "coarse", "none")[block]
    if kind == "none":
        without_vendor()
    passed_once: set[str] = set()
    for seed in range(20 * block, 20 * (block + 1)):
        given = {"vendor": "coarse", "dtype": "bf16"} if kind == "coarse" else {}
        asked = problem(seed, **given)
        space = list(feasible(KERNEL, asked, H200.limits))
        result = search(space, DEFAULT, in_process(asked, seed), seed=seed, sampler="random")
        assert len(result.measurements) == len(space)
        assert result.verdict is not None
        answers = [result.verdict.config, *(tie.config for tie in result.verdict.ties)]
        assert {answer["FAULT"] for answer in answers} == {"none"}
        assert {str(m.config["FAULT"]) for m in result.measurements if m.ok} == {"none"}
        passed_once |= {str(m.config["FAULT"]) for m in result.measurements if "repeated launch" in m.error}
    assert passed_once >= {"racy", "reads outputs"}  # they pass one check, and would win


@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
@pytest.mark.parametrize("how", ["zeros", "row", "element", "factor", "output"])
@pytest.mark.parametrize("wrong", ["vendor", "reference"])
def test_no_search_begins_beside_a_wrong_vendor_or_reference(wrong: str, how: str, dtype: str) -> None:
    for seed in range(20):
        with pytest.raises(KernelFault) as refused:
            in_process(problem(seed, dtype=dtype, **{wrong: how}), seed)
        text = str(refused.value)
        place = {"row": "out[", "element": "total[", "factor": "out[", "output": "top[4]", "zeros": "out[0, 0]"}[how]
        assert f"vendor and reference differ by more than rounding: {place}" in text
        assert "\n" not in text
        assert text.endswith("; correct the wrong one, or state `rounding` if one rounds more coarsely")


def test_a_vendor_that_writes_nothing_is_refused() -> None:
    with pytest.raises(KernelFault, match=r"out\[0, 0\] is nan by vendor and .*; let vendor write to its operands"):
        in_process(problem(0, vendor="nothing"), 0)
