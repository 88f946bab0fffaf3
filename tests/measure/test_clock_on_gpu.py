"""The clocks on a real card: no latency is below the card's limits."""

from __future__ import annotations

import pytest

from tuner import catalog
from tuner.kernels.spec import Problem
from tuner.measure.device import bus_id, describe
from tuner.measure.gpu import GpuMeasurer
from tuner.measure.worker_pool import measure_roofline_limits, start_worker
from tuner.records import POLICIES, Measurement, RooflineLimits

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def roofline_limits() -> RooflineLimits:
    worker = start_worker(0)
    try:
        return measure_roofline_limits(worker)
    finally:
        worker.kill()


def _measured(op: str, problem: Problem, policy: str) -> Measurement:
    kernel, limits = catalog.load(op), describe(0).limits
    measurer = GpuMeasurer(op, problem, limits, policy=POLICIES[policy])
    try:
        measurer.submit(kernel.default_config(problem, limits))
        measurement = measurer.next(timeout_s=60)
    finally:
        measurer.close()
    assert measurement is not None
    assert measurement.ok, measurement
    return measurement


def test_roofline_limits_are_those_of_a_data_centre_card(roofline_limits: RooflineLimits) -> None:
    assert 1000 < roofline_limits.copy_gb_per_s < 10_000
    assert roofline_limits.tflops["bf16"] > roofline_limits.tflops["tf32"] > roofline_limits.tflops["fp32"] > 10
    assert set(roofline_limits.launch_us) == {policy.text for policy in POLICIES.values()}
    assert 0.3 < roofline_limits.launch_us["cold-graph-1"] < roofline_limits.launch_us["cold-events-1"] < 8


@pytest.mark.parametrize(("op", "size"), [("transpose", 1448), ("transpose", 2048), ("softmax", 1448)])
@pytest.mark.parametrize("policy", ["cold", "graph"])
def test_no_kernel_is_faster_than_memory(roofline_limits: RooflineLimits, op: str, size: int, policy: str) -> None:
    """8 MB in and 8 MB out fit into L2: a warm cache would exceed the memory bandwidth."""
    kernel = catalog.load(op)
    problem = kernel.signature.problem({"M": size})
    reached = kernel.bytes(problem) / _measured(op, problem, policy).latency_us / 1e3
    assert reached <= roofline_limits.copy_gb_per_s


def test_a_graph_keeps_the_events_out_of_a_short_latency(roofline_limits: RooflineLimits) -> None:
    problem = catalog.load("transpose").signature.problem({"M": 64})
    graph, events = (_measured("transpose", problem, policy) for policy in ("graph", "cold"))
    assert graph.latency_us < events.latency_us
    assert graph.latency_us < 2 * roofline_limits.launch_us["cold-graph-1"] + 2


def test_a_warm_cache_is_faster(roofline_limits: RooflineLimits) -> None:
    problem = catalog.load("softmax").signature.problem({"M": 1024})
    assert _measured("softmax", problem, "warm").latency_us < 0.9 * _measured("softmax", problem, "graph").latency_us


def test_the_state_of_the_card_is_monitored() -> None:
    from tuner.measure.card import NvmlMonitor, open_monitor

    card = open_monitor(bus_id(0))
    assert isinstance(card, NvmlMonitor)
    state = card.state()
    assert state.sm_mhz is not None
    assert state.temperature_c is not None
    assert 10 < state.temperature_c < 100
    assert state.foreign == ()
