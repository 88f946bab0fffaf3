"""The GPU measurer with real processes on a real card: correct numbers, and faults that end one config each."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from time import monotonic, sleep

import pytest
from helpers import drawn, toy

from tuner import catalog
from tuner.kernels.spec import Config
from tuner.measure.device import bus_id, describe
from tuner.measure.gpu import GpuMeasurer
from tuner.measure.worker_session import WorkerSettings
from tuner.records import VENDOR, Comparison, Evidence, Measurement, Outcome
from tuner.search.space import feasible

pytestmark = pytest.mark.gpu


def _measure_all(measurer: GpuMeasurer, configs: list[Config]) -> dict[Config, Measurement]:
    for config in configs:
        measurer.submit(config)
    found = [measurer.next(timeout_s=60) for _ in configs]
    return {measurement.config: measurement for measurement in found if measurement is not None}


@pytest.fixture(autouse=True)
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    cache = tmp_path / "triton-cache"
    monkeypatch.setenv("TRITON_CACHE_DIR", str(cache))
    return cache


@pytest.mark.parametrize("op", ["gemm", "softmax", "transpose"])
def test_the_pool_compiles_what_the_worker_launches(op: str, fresh_cache: Path) -> None:
    """Launching after the pool adds no entry to Triton's cache, and cached code is correct too."""
    kernel = catalog.load(op)
    problem = kernel.signature.problem({"M": 1024})
    limits = describe(0).limits
    configs = [kernel.default_config(problem, limits), *drawn(kernel, problem, limits, count=6)]
    measurer = GpuMeasurer(op, problem, limits, stop_beaten=False)
    try:
        found = _measure_all(measurer, configs)
        compiled = {config for config in configs if found[config].ok}
        entries = {path.name for path in fresh_cache.iterdir()}
        again = _measure_all(measurer, list(compiled))
        assert {path.name for path in fresh_cache.iterdir()} == entries
    finally:
        measurer.close()
    assert compiled
    assert {found[config].compiled_by for config in compiled} == {"pool"}
    assert all(found[config].compile_s is not None for config in compiled)
    assert all(again[config].compile_s is None for config in compiled)
    for config in compiled:
        assert len(found[config].samples) >= 10
        assert found[config].registers


def test_each_fault_ends_one_config() -> None:
    kernel = catalog.resolve(toy("faulty"))
    problem = kernel.signature.problem({"N": 1 << 20})
    faults = ["none", "wild", "none", "endless", "half", "wrong", "nothing", "refused", "raises", "aborts"]
    knobs = [(block, warps) for block in (64, 128, 256, 512, 1024) for warps in (1, 2)]
    configs = [
        kernel.signature.config({"BLOCK": block, "FAULT": fault, "num_warps": warps, "num_stages": 1})
        for fault, (block, warps) in zip(faults, knobs, strict=True)
    ]
    measurer = GpuMeasurer(toy("faulty"), problem, describe(0).limits, settings=WorkerSettings(stage_s=4.0))
    try:
        found = _measure_all(measurer, configs)
    finally:
        measurer.close()
    outcomes = {config["FAULT"]: found[config].outcome for config in configs}
    assert outcomes == {
        "none": Outcome.OK,
        "wild": Outcome.CRASHED,
        "endless": Outcome.TIMEOUT,
        "half": Outcome.WRONG_RESULT,
        "wrong": Outcome.WRONG_RESULT,
        "nothing": Outcome.WRONG_RESULT,
        "refused": Outcome.COMPILE_ERROR,
        "raises": Outcome.ERROR,
        "aborts": Outcome.CRASHED,
    }
    assert "ZeroDivisionError" in found[configs[8]].error
    assert "SIGABRT" in found[configs[9]].error
    assert found[configs[3]].stage == "launch"


def test_one_crash_in_ten_leaves_nine_measured_and_cuda_usable_here() -> None:
    import torch

    torch.ones(1, device="cuda")  # the caller's own context, made before the workers start
    kernel = catalog.resolve(toy("faulty"))
    problem = kernel.signature.problem({"N": 1 << 20})
    configs = [
        kernel.signature.config({"BLOCK": block, "FAULT": fault, "num_warps": warps, "num_stages": 1})
        for block, warps, fault in [
            *((block, warps, "none") for block in (64, 128, 256) for warps in (1, 2)),
            (512, 1, "wild"),
            *((1024, warps, "none") for warps in (1, 2, 4)),
        ]
    ]
    measurer = GpuMeasurer(toy("faulty"), problem, describe(0).limits)
    try:
        found = _measure_all(measurer, configs)
    finally:
        measurer.close()
    assert Counter(str(m.outcome) for m in found.values()) == {"ok": 9, "crashed": 1}
    assert max(m.latency_us for m in found.values() if m.ok) < 1000
    assert torch.ones(8, device="cuda").sum().item() == 8


def test_an_endless_kernel_is_killed() -> None:
    kernel = catalog.resolve(toy("faulty"))
    problem = kernel.signature.problem({"N": 1 << 20})

    def config(fault: str) -> Config:
        return kernel.signature.config({"BLOCK": 256, "FAULT": fault, "num_warps": 1, "num_stages": 1})

    measurer = GpuMeasurer(toy("faulty"), problem, describe(0).limits, settings=WorkerSettings(stage_s=3.0))
    try:
        started = monotonic()
        found = _measure_all(measurer, [config("endless")])
        assert found[config("endless")].outcome is Outcome.TIMEOUT
        after = _measure_all(measurer, [config("none")])
        assert after[config("none")].ok
        assert monotonic() - started < 45
    finally:
        measurer.close()


def test_operands_written_in_place_are_restored() -> None:
    kernel = catalog.resolve(toy("halve"))
    problem = kernel.signature.problem({"N": 37_000})
    limits = describe(0).limits
    measurer = GpuMeasurer(toy("halve"), problem, limits, stop_beaten=False)
    try:
        configs = drawn(kernel, problem, limits, count=6)
        found = _measure_all(measurer, configs)
        comparison = measurer.compare(configs[:2], rounds=3, seconds=10.0, seed=0)
        evidence = measurer.recheck(configs, seed=1)
        assert evidence == [Evidence(0.0, 2**-22, ("normal", "normal", "special"), 51)] * 6
    finally:
        measurer.close()
    assert all(m.ok and m.max_error == 0.0 for m in found.values())
    assert isinstance(comparison, Comparison)
    assert comparison.contenders == (configs[0].text, configs[1].text, VENDOR)
    assert len(comparison.rounds) == 3


def test_nothing_is_left_running(tmp_path: Path) -> None:
    kernel = catalog.load("softmax")
    problem = kernel.signature.problem({"M": 64})
    measurer = GpuMeasurer("softmax", problem, describe(0).limits)
    children = [measurer._pool.pid, measurer._worker().process.pid]
    measurer.close()
    for pid in children:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_crash_costs_less_than_a_second() -> None:
    """The spare worker has its imports done; it makes its context and continues."""
    kernel = catalog.resolve(toy("faulty"))
    problem = kernel.signature.problem({"N": 1 << 20})
    right, wild = (
        kernel.signature.config({"BLOCK": 256, "FAULT": fault, "num_warps": 1, "num_stages": 1})
        for fault in ("none", "wild")
    )
    measurer = GpuMeasurer(toy("faulty"), problem, describe(0).limits)
    try:
        _measure_all(measurer, [wild])
        _measure_all(measurer, [right])  # both are compiled now; the next spare starts
        sleep(8)  # the spare has started
        started = monotonic()
        _measure_all(measurer, [right])
        undisturbed = monotonic() - started
        started = monotonic()
        assert not _measure_all(measurer, [wild])[wild].ok
        assert _measure_all(measurer, [right])[right].ok
        assert monotonic() - started - 2 * undisturbed < 1.0
    finally:
        measurer.close()


def test_five_hundred_configs_leak_no_memory() -> None:
    kernel = catalog.load("transpose")
    problem = kernel.signature.problem({"M": 64})
    limits = describe(0).limits
    configs = list(feasible(kernel, problem, limits))[:500]
    measurer = GpuMeasurer("transpose", problem, limits)
    try:
        _measure_all(measurer, configs[:100])
        sleep(10)  # the spare has its context
        before = _memory(measurer._worker().process.pid)
        _measure_all(measurer, configs[100:])
        after = _memory(measurer._worker().process.pid)
    finally:
        measurer.close()
    assert len(configs) == 500
    assert after[0] - before[0] < 200 * 2**20
    assert after[1] - before[1] < 200 * 2**20


def _memory(pid: int) -> tuple[int, int]:
    """Return the bytes of host memory of a process, and of card memory of all processes."""
    import pynvml

    pynvml.nvmlInit()
    card = pynvml.nvmlDeviceGetHandleByPciBusId(bus_id(0).encode())
    resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return resident * os.sysconf("SC_PAGE_SIZE"), int(pynvml.nvmlDeviceGetMemoryInfo(card).used)
