"""The profile of a problem with an operand on the host: the link to the card is not among the roofline limits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers import H200
from profiled import case, subject

from tuner.profiling.profile import Profile
from tuner.profiling.report import document, lines
from tuner.profiling.rules import diagnose


@pytest.mark.parametrize(("latency_us", "bandwidth"), [(330.0, "  bandwidth    1,627 GB/s"), (None, None)])
def test_there_is_no_share_of_the_roofline(latency_us: float | None, bandwidth: str | None) -> None:
    judged = replace(subject("without pad", latency_us), is_on_host=True)
    profile = Profile(judged, H200, case("without pad")[2], "given", diagnose(judged), "cold-events-1")
    found, shown = document(profile), [*lines(profile)]
    assert (found["roofline"], found["bottleneck"]["name"]) == (None, "host")
    assert [line for line in shown if "roofline" in line or "of a copy" in line] == []
    assert next((line for line in shown if "bandwidth" in line), None) == bandwidth
