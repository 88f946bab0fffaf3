"""The kernel with what few have, on a real card: each config is right and timed, its hook in CUDA graphs too."""

from __future__ import annotations

import pytest
from helpers import toy

from tuner import catalog
from tuner.measure.device import describe
from tuner.measure.gpu import GpuMeasurer
from tuner.records import POLICIES, Comparison, Evidence, Outcome
from tuner.search.space import feasible

pytestmark = pytest.mark.gpu

FILE = toy("sums")
KERNEL = catalog.resolve(FILE)
PROBLEM = KERNEL.signature.problem({"M": 100, "N": 5000, "factor": 0.5})


@pytest.mark.parametrize("policy", POLICIES)
def test_every_config_is_right_and_timed(policy: str) -> None:
    limits = describe(0).limits
    space = list(feasible(KERNEL, PROBLEM, limits))
    measurer = GpuMeasurer(FILE, PROBLEM, limits, policy=POLICIES[policy], stop_beaten=False)
    try:
        for config in space:
            measurer.submit(config)
        found = [measurement for measurement in (measurer.next(120.0) for _ in space) if measurement is not None]
        comparison = measurer.compare(space, 3, 10.0, 0)
        evidence = measurer.recheck(space, 0)
    finally:
        measurer.close()
    assert [(each.outcome, each.error) for each in found] == [(Outcome.OK, "")] * len(space)
    assert all(each.compiled_by == "pool" for each in found)
    assert isinstance(comparison, Comparison)
    assert all(isinstance(each, Evidence) for each in evidence), evidence
