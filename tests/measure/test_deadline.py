"""Deadlines of compiles, fixed and adaptive."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from helpers import H200, toy
from shipped_spaces import shipped

from tuner import catalog
from tuner.kernels.spec import Config
from tuner.measure.deadline import AdaptiveDeadline, CompileSettings, Deadline
from tuner.measure.messages import Compiled, Pool
from tuner.measure.processes import Child
from tuner.records import Outcome


def test_the_deadline_follows_the_90th_percentile() -> None:
    deadline = Deadline(30.0, AdaptiveDeadline(factor=4.0, least_s=5.0, after=20))
    for _ in range(19):
        deadline.learn(2.0)
    assert deadline.seconds == 30.0  # too few compiles
    deadline.learn(2.0)
    assert deadline.seconds == 8.0
    for _ in range(200):
        deadline.learn(0.5)
    assert deadline.seconds == 5.0  # the lower limit
    for _ in range(4000):
        deadline.learn(20.0)
    assert deadline.seconds == 30.0  # the upper limit


def test_a_fixed_deadline_stays() -> None:
    deadline = Deadline(30.0, None)
    for _ in range(100):
        deadline.learn(0.1)
    assert deadline.seconds == 30.0


def test_no_fast_config_of_a_recorded_space_is_stopped() -> None:
    """Replays compile times and latencies of one card in random orders."""
    space = shipped("gemm-256x4096x14336-bf16-nt-nvidia-h200")
    best = min(measurement.latency_us for measurement in space.measurements if measurement.ok)
    for seed in range(3):
        deadline = Deadline(30.0, AdaptiveDeadline())
        stopped = []
        for measurement in random.Random(seed).sample(space.measurements, len(space.measurements)):
            if (measurement.compile_s or 0.0) > deadline.seconds:
                stopped.append(measurement)
            elif measurement.compile_s is not None:
                deadline.learn(measurement.compile_s)
        assert len(stopped) < 0.01 * len(space.measurements)
        assert all(measurement.latency_us > 5 * best for measurement in stopped)


def test_the_pool_stops_a_compile_that_takes_much_longer_than_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stops long before the fixed deadline."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("FAULTY_PIDS", str(tmp_path / "pids"))
    signature = catalog.resolve(toy("faulty")).signature

    def faulty(fault: str, block: int) -> Config:
        return signature.config({"BLOCK": block, "FAULT": fault, "num_warps": 1, "num_stages": 1})

    pool = Child("tuner.measure.compile")
    adaptive = AdaptiveDeadline(factor=3.0, least_s=1.0, after=2)
    pool.send(Pool(toy("faulty"), signature.problem({"N": 1000}), H200.limits, 2, CompileSettings(600.0, adaptive)))
    for config in (faulty("sleeps", 256), faulty("none", 256), faulty("none", 512)):
        pool.send(config)
    found: list[Compiled] = [pool.receive() for _ in range(3)]
    pool.kill(grace_s=5.0)
    assert [result.outcome for result in found] == [Outcome.OK, Outcome.OK, Outcome.TIMEOUT]
    assert re.fullmatch(r"the compile took longer than its deadline of [0-9.]+ s", found[2].error)
