"""Roofline limits of problems on the host, and their timing policy."""

from __future__ import annotations

import pytest

from tuner import catalog
from tuner.records import POLICIES, RooflineLimits
from tuner.tuning.roofline import limits_for
from tuner.tuning.target import timing_policy

LIMITS = RooflineLimits(4000.0, {}, {})


@pytest.mark.parametrize(("memory", "policy"), [("device", "graph"), ("pinned", "cold"), ("pageable", "cold")])
def test_a_problem_on_the_host_has_no_roofline_and_is_not_timed_in_a_graph(memory: str, policy: str) -> None:
    kernel = catalog.load("copy_column")
    problem = kernel.signature.problem({"M": 300, "N": 3, "memory": memory})
    assert limits_for("copy_column", problem, LIMITS) == (LIMITS if memory == "device" else None)
    assert limits_for("copy_column", problem, None) is None
    assert timing_policy(kernel, problem, LIMITS) == POLICIES[policy]
    assert timing_policy(kernel, problem, LIMITS, "warm") == POLICIES["warm"]


def test_the_limits_of_a_kernel_that_cannot_be_loaded_are_those_of_the_card() -> None:
    problem = catalog.load("copy_column").signature.problem({"M": 300, "N": 3})
    assert limits_for("no_such_op", problem, LIMITS) == LIMITS
