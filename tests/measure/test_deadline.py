"""How long a compile may take."""

from __future__ import annotations

import random

from tuner.measure import recorded
from tuner.measure.deadline import Adaptive, Deadline


def test_a_deadline_follows_what_nine_of_ten_take() -> None:
    deadline = Deadline(30.0, Adaptive(times=4.0, least_s=5.0, after=20))
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
        deadline = Deadline(30.0, Adaptive())
        given_up = []
        for measurement in random.Random(seed).sample(space.measurements, len(space.measurements)):
            if (measurement.compile_s or 0.0) > deadline.seconds:
                given_up.append(measurement)
            elif measurement.compile_s is not None:
                deadline.learn(measurement.compile_s)
        assert 0 < len(given_up) < 10
        assert all(measurement.latency_us > 5 * best for measurement in given_up)
