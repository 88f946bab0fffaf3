"""The worker on a real card."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from helpers import H200, toy

from tuner import catalog
from tuner.kernels.spec import Operand
from tuner.measure.clock import EventClock
from tuner.measure.messages import Measure, Recheck, Task
from tuner.measure.worker import Worker
from tuner.records import Evidence

pytestmark = pytest.mark.gpu


def test_a_huge_input_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 20 GiB that are read and 4 MiB that are written, further memory is in proportion to the latter."""
    halve = catalog.resolve(toy("halve"))

    def operands(problem: object) -> dict[str, Operand]:
        huge = Operand((20 * 2**30,), "int8", fill=lambda tensor, generator: tensor.zero_())
        return {"huge": huge, "x": Operand((2**20,), "fp32", "inout")}

    kernel = replace(halve, operands=operands)
    monkeypatch.setattr(catalog, "resolve", lambda reference: kernel)
    problem = halve.signature.problem({"N": 2**20})
    config = halve.signature.config({"BLOCK": 256, "num_warps": 4, "num_stages": 1})
    clock = EventClock("cuda:0")
    before = torch.cuda.memory_allocated()
    worker = Worker(Task(toy("halve"), problem, H200.limits), lambda message: None, clock=clock)
    torch.cuda.reset_peak_memory_stats()
    assert worker.measure(Measure(config, None, seed=1)).ok
    assert isinstance(worker.recheck(Recheck(config, seed=1)), Evidence)
    operands_bytes = 20 * 2**30 + 4 * 2**20
    beside = torch.cuda.max_memory_allocated() - before - operands_bytes
    assert beside < 16 * 4 * 2**20  # 46 MiB on an H200: copies of what is written, and a reference in fp64
