"""Measured spaces of other tools, read for a replay, and ours written for Kernel Tuner."""

from __future__ import annotations

import gzip
import json
import warnings
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from shipped_spaces import shipped

from tuner.errors import UsageError
from tuner.exchange import measurements
from tuner.exchange.kernel_tuner import to_cache
from tuner.records import Outcome

CACHE: dict[str, Any] = {  # cut from benchmark_hub's cachefiles/convolution_milo/A100.json.gz
    "device_name": "NVIDIA A100-PCIE-40GB",
    "tune_params_keys": ["block_size_x", "tile_size_x"],
    "tune_params": {"block_size_x": [16, 32], "tile_size_x": [1, 2]},
    "cache": {
        "16,1": {"block_size_x": 16, "tile_size_x": 1, "time": 3.9, "times": [3.97, 3.88, 3.87]},
        "16,2": {"block_size_x": 16, "tile_size_x": 2, "time": "CompilationFailedConfig"},
        "32,1": {"block_size_x": 32, "tile_size_x": 1, "time": "RuntimeFailedConfig"},
        "32,2": {"block_size_x": 32, "tile_size_x": 2, "time": 2.5},
    },
}


def test_a_kernel_tuner_cache(tmp_path: Path) -> None:
    file = tmp_path / "A100.json.gz"
    file.write_bytes(gzip.compress(json.dumps(CACHE).encode()))
    read = measurements.load(file)
    assert [dict(m.config) for m in read[:2]] == [
        {"block_size_x": 16, "tile_size_x": 1},
        {"block_size_x": 16, "tile_size_x": 2},
    ]
    assert [m.outcome for m in read] == [Outcome.OK, Outcome.COMPILE_ERROR, Outcome.ERROR, Outcome.OK]
    assert [m.latency_us for m in read if m.ok] == [3.88, 2.5]


def test_a_cache_of_an_interrupted_search(tmp_path: Path) -> None:
    """Kernel Tuner closes the braces only when a search ends."""
    file = tmp_path / "cache.json"
    file.write_text(json.dumps(CACHE)[:-2] + ",\n")
    assert len(measurements.load(file)) == 4


def test_our_own_files_are_t4(tmp_path: Path) -> None:
    name = "softmax-8192x8192-fp32-nvidia-h200"
    file = tmp_path / "ours.json.gz"
    file.write_bytes((files("tuner") / "recorded" / f"{name}.json.gz").read_bytes())
    ours = shipped(name).measurements
    read = measurements.load(file)
    assert [dict(m.config) for m in read] == [dict(m.config) for m in ours]
    assert [m.ok for m in read] == [m.ok for m in ours]
    assert [m.latency_us for m in read if m.ok] == pytest.approx([m.latency_us / 1000 for m in ours if m.ok])


def test_a_correct_t4_result_without_times_is_an_error(tmp_path: Path) -> None:
    def result(block: int, correctness: int, *runtimes: float) -> dict[str, Any]:
        ran = {"invalidity": "correct", "correctness": correctness, "measurements": []}
        return {"configuration": {"block_size_x": block}, "times": {"runtimes": list(runtimes)}, **ran}

    file = tmp_path / "t4.json"
    file.write_text(json.dumps({"results": [result(1, 1, 0.2), result(2, 1), result(3, 0, 0.1)]}))
    assert [m.outcome for m in measurements.load(file)] == [Outcome.OK, Outcome.ERROR, Outcome.WRONG_RESULT]


def test_a_written_cache_is_read_back(tmp_path: Path) -> None:
    space = shipped("softmax-8192x8192-fp32-nvidia-h200")
    file = tmp_path / "softmax.json"
    file.write_text(to_cache(space.measurements, "softmax", space.problem.sizes, space.device.name))
    read = measurements.load(file)
    assert [dict(m.config) for m in read] == [dict(m.config) for m in space.measurements]
    assert [m.outcome for m in read] == [m.outcome for m in space.measurements]
    assert {m.outcome for m in read} == {Outcome.OK, Outcome.INFEASIBLE}
    assert [m.latency_us for m in read if m.ok] == pytest.approx(
        [m.latency_us / 1000 for m in space.measurements if m.ok]
    )


def test_kernel_tuner_finds_the_optimum_in_a_written_cache(tmp_path: Path) -> None:
    kernel_tuner = pytest.importorskip("kernel_tuner", reason="kernel-tuner is not installed")
    space = shipped("gemm-16x4096x4096-bf16-nvidia-h200")  # with a knob of text values
    file = tmp_path / "gemm.json"
    file.write_text(to_cache(space.measurements, "gemm", space.problem.sizes, space.device.name))
    with warnings.catch_warnings(action="ignore"):
        results, environment = kernel_tuner.tune_cache(str(file), strategy="brute_force", quiet=True)
    assert len(results) == len(space.measurements)
    assert environment["device_name"] == "NVIDIA H200"
    best = min(space.measurements, key=lambda measurement: measurement.latency_us)
    found = environment["best_config"]
    assert {name: found[name] for name in best.config} == dict(best.config)
    assert found["time"] == pytest.approx(best.latency_us / 1000)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "x.json is neither a Kernel Tuner cache nor a T4 file: Expecting value in line 1"),
        ('{"a": 1}', "x.json is neither a Kernel Tuner cache nor a T4 file: it has no 'results'"),
        ("[]", "x.json is neither a Kernel Tuner cache nor a T4 file: ValueError: it is a list, not an object"),
        ('{"results": [' * 100_000 + "}", "x.json is neither a Kernel Tuner cache nor a T4 file: RecursionError"),
        (json.dumps(CACHE | {"cache": {"a": 1}}), "x.json is neither a Kernel Tuner cache nor a T4 file: TypeError"),
        (json.dumps({"tune_params_keys": [], "cache": {"a": {"time": 10**400}}}), "x.json has no config that ran"),
        (
            '{"results": [{"configuration": [8]}]}',
            r"x.json: a config is an object with a value for each knob, not \[8\]",
        ),
        ('{"results": []}', "x.json has no config that ran, so it has no best config to search for"),
    ],
)
def test_a_file_of_another_format_is_refused(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "x.json"
    file.write_text(text)
    with pytest.raises(UsageError, match=why):
        measurements.load(file)
