"""How long a compile may take."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from helpers import H200, toy

from tuner import catalog
from tuner.kernels.spec import Config
from tuner.measure import recorded
from tuner.measure.deadline import AdaptiveDeadline, Deadline
from tuner.measure.messages import Compiled, Pool
from tuner.measure.processes import Child
from tuner.records import Outcome


def test_a_deadline_follows_what_nine_of_ten_take() -> None:
    deadline = Deadline(30.0, AdaptiveDeadline(times=4.0, least_s=5.0, after=20))
    for _ in range(19):
        deadline.learn(2.0)
    assert deadline.seconds == 30.0  # too few to tell
    deadline.learn(2.0)
    assert deadline.seconds == 8.0
    for _ in range(200):
        deadline.learn(0.5)
    assert deadline.seconds == 5.0  # never less
    for _ in range(4000):
        deadline.learn(20.0)
    assert deadline.seconds == 30.0  # never more


def test_where_all_is_wanted_it_stays() -> None:
    deadline = Deadline(30.0, None)
    for _ in range(100):
        deadline.learn(0.1)
    assert deadline.seconds == 30.0


def test_nothing_fast_is_given_up_on_a_recorded_space() -> None:
    """Compile times and latencies of one card; the order of the compiles by chance."""
    space = recorded.load("gemm-256x4096x14336-bf16-nt-nvidia-h200")
    best = min(measurement.latency_us for measurement in space.measurements if measurement.ok)
    for seed in range(3):
        deadline = Deadline(30.0, AdaptiveDeadline())
        given_up = []
        for measurement in random.Random(seed).sample(space.measurements, len(space.measurements)):
            if (measurement.compile_s or 0.0) > deadline.seconds:
                given_up.append(measurement)
            elif measurement.compile_s is not None:
                deadline.learn(measurement.compile_s)
        assert len(given_up) < 0.01 * len(space.measurements)
        assert all(measurement.latency_us > 5 * best for measurement in given_up)


def test_the_pool_gives_up_a_compile_that_takes_much_longer_than_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long before the deadline that holds for all."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("FAULTY_PIDS", str(tmp_path / "pids"))
    signature = catalog.resolve(toy("faulty")).signature

    def faulty(fault: str, block: int) -> Config:
        return signature.config({"BLOCK": block, "FAULT": fault, "num_warps": 1, "num_stages": 1})

    pool = Child("tuner.measure.compile")
    adaptive = AdaptiveDeadline(times=3.0, least_s=1.0, after=2)
    pool.send(Pool(toy("faulty"), signature.problem({"N": 1000}), H200.limits, 2, 600.0, adaptive))
    for config in (faulty("sleeps", 256), faulty("none", 256), faulty("none", 512)):
        pool.send(config)
    found: list[Compiled] = [pool.receive() for _ in range(3)]
    pool.kill(grace_s=5.0)
    assert [result.outcome for result in found] == [Outcome.OK, Outcome.OK, Outcome.TIMEOUT]
    assert re.fullmatch(r"the compiler was still at work after [0-9.]+ s", found[2].error)
